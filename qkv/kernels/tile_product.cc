#include "qkv/kernels/tile_product.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <vector>

#include "qkv/base/parallel.h"
#include "qkv/kernels/tile/share.h"
#include "qkv/tensor/storage.h"

namespace qkv {
namespace {

using tile::kPanel;
using tile::kStepElements;
using tile::panels;

constexpr int64_t kAll = std::numeric_limits<int64_t>::max() / 2;

void* advance(void* x, DType t, int64_t elements) {
  return static_cast<std::byte*>(x) + elements * size_of(t);
}

// The product that gives rows [begin, end) of C.
Product rows_of(Product p, int64_t begin, int64_t end) {
  p.m = end - begin;
  p.a = p.a.transposed ? p.a.from(0, begin) : p.a.from(begin, 0);
  p.c = advance(p.c, p.out, begin * p.c_stride);
  return p;
}

// The product that gives columns [begin, end) of C.
Product columns_of(Product p, int64_t begin, int64_t end) {
  p.n = end - begin;
  p.b = p.b.transposed ? p.b.from(begin, 0) : p.b.from(0, begin);
  if (p.bias) p.bias += begin;
  p.c = advance(p.c, p.out, begin);
  return p;
}

// All of B, each thread what lies together in memory.
void pack_b(const Product& p, BFloat16* packed) {
  const int64_t steps = panels(p.k);
  if (!p.b.transposed) {
    parallel_for(steps, 1, [&](int64_t begin, int64_t end) { tile::pack_b(p, {begin, end}, packed); });
  } else {
    parallel_for(panels(p.n), 1, [&](int64_t begin, int64_t end) {
      tile::pack_b(columns_of(p, begin * kPanel, std::min(end * kPanel, p.n)), {0, steps},
                   packed + begin * steps * kStepElements);
    });
  }
}

// Into how many shares of rows times shares of columns C is cut.
struct Grid {
  int64_t rows, columns;
};

// The one whose largest share is the least work, counted in blocks of C: to multiply each, to fetch a panel
// of B (about two blocks' time) for each block of rows, and to pack a panel of A (about one).
Grid grid(const Product& p, const TileBlocking& blocking) {
  const int64_t rows = panels(p.m), columns = panels(p.n), threads = num_threads();
  Grid best{1, 1};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t r = 1; r <= std::min(rows, threads); ++r) {
    const int64_t c = std::min(columns, threads / r);
    const int64_t m = (rows + r - 1) / r, n = (columns + c - 1) / c;
    const int64_t row_blocks = (m + panels(blocking.rows) - 1) / panels(blocking.rows);
    const int64_t work = m * n + 2 * n * row_blocks + m;
    if (work < least) least = work, best = {r, c};
  }
  return best;
}

// REQUIRES: packed B has room for the product's columns.
void multiply(const Product& p, TileUnit unit, const TileBlocking& blocking, BFloat16* packed) {
  pack_b(p, packed);
  const Grid cut = grid(p, blocking);
  std::vector<tile::Share> shares;
  std::vector<int64_t> scratch_begin;
  int64_t scratch_bytes = 0;
  for (int64_t r = 0; r < cut.rows; ++r)
    for (int64_t c = 0; c < cut.columns; ++c) {
      const auto bound = [](int64_t i, int64_t pieces, int64_t extent) {
        return std::min(panels(extent) * i / pieces * kPanel, extent);
      };
      const int64_t column = bound(c, cut.columns, p.n);
      const Product part = columns_of(rows_of(p, bound(r, cut.rows, p.m), bound(r + 1, cut.rows, p.m)),
                                      column, bound(c + 1, cut.columns, p.n));
      shares.push_back({part, packed + column / kPanel * panels(p.k) * kStepElements, blocking, nullptr});
      scratch_begin.push_back(scratch_bytes);
      scratch_bytes += tile::scratch_bytes(part, blocking);
    }
  const auto scratch = Storage::allocate(scratch_bytes);
  for (size_t i = 0; i < shares.size(); ++i) shares[i].scratch = scratch->data() + scratch_begin[i];
  parallel_for(static_cast<int64_t>(shares.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if (unit == TileUnit::amx)
        tile::multiply_amx(shares[i]);
      else
        tile::multiply_emulated(shares[i]);
  });
}

}  // namespace

// Best by measurement on two cores with 48 KiB of first and 2 MiB of second cache. A pass
// wants a panel of B, depth x 32, in the first, and A's block, rows x depth, in the second; several passes
// also the sums, rows x columns. Up to k = 1024 a single pass, whose sums never leave the tiles, is worth
// more than the first cache.
TileBlocking tile_blocking(const Product& p) {
  // A smaller C is still cached when it is read; gradients of weights, in f32, are not read for long.
  const int64_t stream_bytes = int64_t{p.out == DType::f32 ? 4 : 8} << 20;
  // A block of rows of A is packed for each block of columns, or passes through memory: few are better one.
  TileBlocking blocking{.rows = 256, .columns = p.n <= 768 ? 768 : 256, .depth = 512};
  if (!p.a.transposed && p.k <= 1024)
    blocking = {.rows = 512, .columns = kAll, .depth = 1024};
  else if (!p.a.transposed && p.k > 16384)
    blocking = {.rows = 512, .columns = 2048, .depth = 512};  // A is too large to stay packed: once is best
  blocking.stream = p.m * p.n * size_of(p.out) > stream_bytes;
  return blocking;
}

// Packing B pays from some hundred rows of A on, and short sums or few columns leave the time to the edges.
bool tile_product_takes(const Product& p) {
  constexpr int64_t kLeast = 256;
  return p.a.type == WeightType::bf16 && p.m >= kLeast && p.n >= kLeast && p.k >= kLeast &&
         tiles_available(TileUnit::amx);
}

void tile_product(const Product& p, TileUnit unit, const TileBlocking& blocking) {
  assert(tiles_available(unit) && p.a.type == WeightType::bf16 && p.m > 0 && p.n > 0 && p.k > 0);
  const int64_t panel_bytes = panels(p.k) * kStepElements * size_of(DType::bf16);
  const int64_t at_once =
      std::min(panels(p.n), std::max<int64_t>(1, blocking.packed_bytes / panel_bytes)) * kPanel;
  const auto packed = Storage::allocate(at_once / kPanel * panel_bytes);
  for (int64_t n = 0; n < p.n; n += at_once)
    multiply(columns_of(p, n, std::min(n + at_once, p.n)), unit, blocking,
             reinterpret_cast<BFloat16*>(packed->data()));
}

}  // namespace qkv
