#include "qkv/kernels/gemm.h"

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"
#include "qkv/kernels/quantized_product.h"
#include "qkv/kernels/row_product.h"
#include "qkv/kernels/scratch.h"
#include "qkv/kernels/tile_product.h"
#include "qkv/quant/quantize.h"

namespace qkv {
namespace {

float element(const void* x, DType t, int64_t i) {
  return t == DType::f32 ? static_cast<const float*>(x)[i]
                         : static_cast<float>(static_cast<const BFloat16*>(x)[i]);
}

float element(const MatrixView& x, int64_t row, int64_t column) {
  const DType type = x.type == WeightType::f32 ? DType::f32 : DType::bf16;
  return element(x.data, type, x.transposed ? column * x.stride + row : row * x.stride + column);
}

}  // namespace

void generic_matrix_product(const Product& p) {
  parallel_for(p.m, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        float sum = p.bias ? p.bias[j] : 0;
        for (int64_t l = 0; l < p.k; ++l) sum += element(p.a, i, l) * element(p.b, l, j);
        const int64_t at = i * p.c_stride + j;
        if (p.accumulate) sum += element(p.c, p.out, at);
        if (p.out == DType::f32)
          static_cast<float*>(p.c)[at] = sum;
        else
          static_cast<BFloat16*>(p.c)[at] = BFloat16(sum);
      }
  });
}

namespace {

using dnnl::memory;
using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int, int>;

dnnl::engine& engine() {
  static dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}

// A product's primitive and its memory objects. Creating either takes longer than a small product.
struct Prepared {
  bool supported = false;
  dnnl::matmul primitive;
  std::unordered_map<int, memory> arguments;
};

memory::data_type onednn_type(WeightType t) {
  return t == WeightType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc matrix(int64_t rows, int64_t columns, const MatrixView& x) {
  return {{rows, columns},
          onednn_type(x.type),
          x.transposed ? memory::dims{1, x.stride} : memory::dims{x.stride, 1}};
}

Prepared prepare(const Product& p) {
  Prepared out;
  const auto a = matrix(p.m, p.k, p.a);
  const auto b = matrix(p.k, p.n, p.b);
  const auto c = matrix(p.m, p.n, dense(nullptr, p.out, p.c_stride));
  const memory::desc bias({1, p.n}, memory::data_type::f32, memory::dims{p.n, 1});
  dnnl::primitive_attr attributes;
  if (p.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const auto description = p.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul::primitive_desc chosen(description, attributes, engine(), /*allow_empty=*/true);
  if (!chosen) return out;
  out.supported = true;
  out.primitive = dnnl::matmul(chosen);
  out.arguments = {{DNNL_ARG_SRC, memory(a, engine(), nullptr)},
                   {DNNL_ARG_WEIGHTS, memory(b, engine(), nullptr)},
                   {DNNL_ARG_DST, memory(c, engine(), nullptr)}};
  if (p.bias) out.arguments.emplace(DNNL_ARG_BIAS, memory(bias, engine(), nullptr));
  return out;
}

Prepared& prepared(const Product& p) {
  thread_local std::map<Key, Prepared> cache;
  const int flags = (p.a.type == WeightType::bf16) | (p.out == DType::bf16) << 1 | p.a.transposed << 2 |
                    p.b.transposed << 3 | (p.bias != nullptr) << 4 | p.accumulate << 5;
  const Key key{p.m, p.n, p.k, p.a.stride, p.b.stride, p.c_stride, flags, num_threads()};
  if (const auto it = cache.find(key); it != cache.end()) return it->second;
  if (cache.size() >= 4096) cache.clear();  // bounds the cache if lengths keep changing
  return cache.emplace(key, prepare(p)).first->second;
}

// True if our packed product is faster than oneDNN's. For bf16 it is if the processor has no bf16 products.
// For f32 it is if an operand that is not transposed has rows that begin in the same cache sets: oneDNN
// does not pack such operands.
bool is_packed(const Product& p) {
  constexpr int64_t kWorth = 1 << 12;  // multiplications; with fewer, packing does not pay off
  if (kernels().product == nullptr) return false;
  if (p.a.type == WeightType::bf16) return !bf16_is_fast() && p.m * p.n * p.k >= kWorth;
  const auto collides = [](int64_t stride) { return stride > 2048 && stride % 1024 == 0; };
  return !p.b.transposed && p.m >= 256 && p.n >= 16 && p.k >= 16 &&
         (collides(p.b.stride) || (!p.a.transposed && collides(p.a.stride)));
}

// Gives each thread a rectangle of C. Chooses the cut whose largest rectangle takes the least work, packing
// included.
void packed_product(const Product& p) {
  constexpr int64_t kUnit = 48;  // no rectangle is narrower, and most edges are whole tiles
  const int64_t threads = num_threads(), rows = (p.m + kUnit - 1) / kUnit,
                columns = (p.n + kUnit - 1) / kUnit;
  int64_t r = 1, c = 1;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t i = 1; i <= std::min(threads, rows); ++i) {
    const int64_t j = std::min(threads / i, columns);
    const int64_t most_rows = (rows + i - 1) / i, most_columns = (columns + j - 1) / j;
    const auto m = static_cast<double>(most_rows), n = static_cast<double>(most_columns);
    const double work = m * n + (m + n) / 4;  // packing an element takes as long as 12 multiplications
    if (work < least) least = work, r = i, c = j;
  }
  const auto bound = [](int64_t i, int64_t parts, int64_t units, int64_t extent) {
    return std::min(units * i / parts * kUnit, extent);
  };
  std::vector<Product> shares;
  for (int64_t i = 0; i < r; ++i)
    for (int64_t j = 0; j < c; ++j) {
      const int64_t m0 = bound(i, r, rows, p.m), n0 = bound(j, c, columns, p.n);
      Product s = p;
      s.m = bound(i + 1, r, rows, p.m) - m0;
      s.n = bound(j + 1, c, columns, p.n) - n0;
      s.a = p.a.transposed ? p.a.from(0, m0) : p.a.from(m0, 0);
      s.b = p.b.transposed ? p.b.from(n0, 0) : p.b.from(0, n0);
      s.bias = p.bias ? p.bias + n0 : nullptr;
      s.c = static_cast<std::byte*>(p.c) + (m0 * p.c_stride + n0) * size_of(p.out);
      shares.push_back(s);
    }
  int64_t floats = 0;
  for (const Product& s : shares) floats = std::max(floats, (kernels().product_scratch(s) + 15) / 16 * 16);
  const Scratch scratch(floats * static_cast<int64_t>(shares.size()));
  parallel_for(static_cast<int64_t>(shares.size()), 1, [&](int64_t i, int64_t end) {
    for (; i < end; ++i) kernels().product(shares[i], scratch.data() + i * floats);
  });
}

}  // namespace

void onednn_product(const Product& p) {
  share_openmp();
  try {
    Prepared& ready = prepared(p);
    check(ready.supported, "matrix product: oneDNN has no {} product for m {}, n {}, k {}", name_of(p.a.type),
          p.m, p.n, p.k);
    ready.arguments[DNNL_ARG_SRC].set_data_handle(const_cast<void*>(p.a.data));
    ready.arguments[DNNL_ARG_WEIGHTS].set_data_handle(const_cast<void*>(p.b.data));
    ready.arguments[DNNL_ARG_DST].set_data_handle(p.c);
    if (p.bias) ready.arguments[DNNL_ARG_BIAS].set_data_handle(const_cast<float*>(p.bias));
    thread_local dnnl::stream stream(engine());
    ready.primitive.execute(stream, ready.arguments);
    stream.wait();
  } catch (const dnnl::error& e) {
    fail("matrix product: oneDNN failed for m {}, n {}, k {}: {}", p.m, p.n, p.k, e.what());
  }
}

namespace {

// A product by B's numbers in the type of A, decoded some rows at a time.
void decoded_product(const Product& p) {
  constexpr int64_t kElements = 1 << 20;  // decoded at a time
  const int64_t width = p.b.transposed ? p.k : p.n, rows = p.b.transposed ? p.n : p.k,
                at_once = std::min(rows, std::max<int64_t>(64, kElements / width / 64 * 64));
  const bool narrow = p.a.type == WeightType::bf16;
  const Scratch decoded(at_once * width);
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t count = std::min(at_once, rows - first);
    parallel_for(count, 8, [&](int64_t r, int64_t end) {
      std::vector<float> row(narrow ? width : 0);
      for (; r < end; ++r) {
        const auto* from = static_cast<const std::byte*>(p.b.from(first + r, 0).data);
        dequantize_row(p.b.type, from, width, narrow ? row.data() : decoded.data() + r * width);
        if (narrow)
          kernels().bf16.from_f32(width, row.data(), reinterpret_cast<BFloat16*>(decoded.data()) + r * width);
      }
    });
    Product part = p;
    part.b = {decoded.data(), p.a.type, width, p.b.transposed};
    if (p.b.transposed) {
      part.n = count;
      part.bias = p.bias != nullptr ? p.bias + first : nullptr;
      part.c = static_cast<std::byte*>(p.c) + first * size_of(p.out);
    } else {
      part.k = count;
      part.a = p.a.transposed ? p.a.from(first, 0) : p.a.from(0, first);
      part.bias = first == 0 ? p.bias : nullptr;
      part.accumulate = p.accumulate || first > 0;
    }
    matrix_product(part);
  }
}

}  // namespace

void matrix_product(const Product& p) {
  if (p.m == 0 || p.n == 0) return;
  if (p.b.type != p.a.type && p.k > 0) {
    if (is_quantized(p.b.type) && p.b.transposed) return quantized_product(p);
    return decoded_product(p);
  }
  if (p.k == 0) return generic_matrix_product(p);
  if (p.m <= kFewRows && p.n >= 16 && p.k >= 16 && row_product_takes(p)) return row_product(p);
  if (is_packed(p)) return packed_product(p);
  if (p.a.type == WeightType::bf16 && !bf16_is_fast())
    return generic_matrix_product(p);  // small, or without SIMD
  if (tile_product_takes(p)) return tile_product(p, TileUnit::amx, tile_blocking(p));
  onednn_product(p);
}

}  // namespace qkv
