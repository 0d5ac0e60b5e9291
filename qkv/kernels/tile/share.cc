// Compiled for AVX-512 and AMX (CMakeLists.txt). An inline function or template that this file shared with
// others would be compiled so here, and the linker might take this version for all: everything but the
// functions of share.h is in an unnamed namespace, and the standard library is left out
// (tools/symbol_lint.py).
#include "qkv/kernels/tile/share.h"

#ifdef __x86_64__

#include "qkv/kernels/tile/epilogue-inl.h"
#include "qkv/kernels/tile/pack-inl.h"
#include "qkv/kernels/tile/tiles-inl.h"

namespace qkv::tile {
namespace {

constexpr int64_t kBlockSums = kPanel * kPanel;

// Extents in panels and steps, and what follows from them.
struct Plan {
  Plan(const Product& p, const TileBlocking& b)
      : rows(panels(p.m)), columns(panels(p.n)), steps(panels(p.k)) {
    block_rows = smaller(panels(b.rows), rows);
    block_columns = smaller(panels(b.columns), columns);
    block_steps = smaller(panels(b.depth), steps);
    one_pass = block_steps == steps;
    const int64_t whole = block_rows * steps * kStepElements * int64_t{sizeof(BFloat16)};
    keeps_a = block_columns < columns && whole <= b.resident_bytes;
    a_pitch = keeps_a ? steps : block_steps;
  }
  int64_t packed_a_bytes() const { return block_rows * a_pitch * kStepElements * int64_t{sizeof(BFloat16)}; }
  int64_t sums_bytes() const {
    return (one_pass ? 1 : block_rows * block_columns) * kBlockSums * int64_t{sizeof(float)};
  }

  int64_t rows, columns, steps;
  int64_t block_rows, block_columns, block_steps;
  bool one_pass;    // a block's sums stay in tiles until they are done
  bool keeps_a;     // a block of rows is packed once for all blocks of columns
  int64_t a_pitch;  // steps between panels of packed A
};

// Brings a piece of memory into the second cache, a few lines at a time.
class Prefetch {
 public:
  Prefetch(const BFloat16* data, int64_t steps, int64_t lines_at_once)
      : at_(reinterpret_cast<const char*>(data)),
        end_(reinterpret_cast<const char*>(data + steps * kStepElements)),
        lines_(lines_at_once) {}
  void advance() {
    for (int64_t i = 0; i < lines_ && at_ < end_; ++i, at_ += 64) _mm_prefetch(at_, _MM_HINT_T1);
  }

 private:
  const char *at_, *end_;
  int64_t lines_;
};

template <typename Tiles, typename Out>
class Multiplication {
 public:
  explicit Multiplication(const Share& share)
      : p_(share.product),
        plan_(p_, share.blocking),
        packed_b_(share.packed_b),
        sums_(reinterpret_cast<float*>(share.scratch)),
        packed_a_(reinterpret_cast<BFloat16*>(share.scratch + plan_.sums_bytes())),
        epilogue_(p_, share.blocking.stream) {}

  void run() {
    tiles_.configure();
    for (int64_t row = 0; row < plan_.rows; row += plan_.block_rows)
      for (int64_t column = 0; column < plan_.columns; column += plan_.block_columns)
        for (int64_t step = 0; step < plan_.steps; step += plan_.block_steps)
          pass({row, smaller(row + plan_.block_rows, plan_.rows)},
               {column, smaller(column + plan_.block_columns, plan_.columns)},
               {step, smaller(step + plan_.block_steps, plan_.steps)});
    tiles_.release();
    epilogue_.finish();
  }

 private:
  // A panel of B stays in the first cache while the panels of A, which the second holds, pass by.
  void pass(Range rows, Range columns, Range steps) {
    const bool first = steps.begin == 0, last = steps.end == plan_.steps;
    BFloat16* const a = packed_a_ + (plan_.keeps_a ? steps.begin * kStepElements : 0);
    if (columns.begin == 0 || !plan_.keeps_a) pack<false>(rows_of_a(p_), rows, steps, plan_.a_pitch, a);
    const int64_t lines_a_step = kStepElements * int64_t{sizeof(BFloat16)} / 64;
    const int64_t row_count = rows.end - rows.begin, step_count = steps.end - steps.begin;
    for (int64_t column = columns.begin; column < columns.end; ++column) {
      Prefetch next(b_after(column, columns, steps), step_count, (lines_a_step + row_count - 1) / row_count);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        float* sums = block_sums(row - rows.begin, column - columns.begin);
        if (first)
          tiles_.zero_sums();
        else
          tiles_.load_sums(sums, kPanel);
        multiply_add(a + (row - rows.begin) * plan_.a_pitch * kStepElements, b_at(column, steps.begin),
                     step_count, next);
        tiles_.store_sums(sums, kPanel);
        if (last) epilogue_.begin(sums, row * kPanel, column * kPanel);
      }
    }
  }

  // Sums += the panels' product. Meanwhile all of the block before is written, so that its sums may be
  // overwritten.
  void multiply_add(const BFloat16* a, const BFloat16* b, int64_t steps, Prefetch& next) {
    const int64_t rows_a_step = (kPanel + steps - 1) / steps;
    for (int64_t step = 0; step < steps; ++step, a += kStepElements, b += kStepElements) {
      tiles_.load_b0(b, 64);
      tiles_.load_a0(a, 64);
      tiles_.multiply_00();
      tiles_.load_b1(b + kTileElements, 64);
      tiles_.multiply_01();
      tiles_.load_a1(a + kTileElements, 64);
      tiles_.multiply_10();
      tiles_.multiply_11();
      next.advance();
      epilogue_.write_rows(rows_a_step);
    }
  }

  const BFloat16* b_at(int64_t column, int64_t step) const {
    return packed_b_ + (column * plan_.steps + step) * kStepElements;
  }
  // The panel that is wanted next: of this pass, of the next pass, of the next columns, or again of the
  // first.
  const BFloat16* b_after(int64_t column, Range columns, Range steps) const {
    if (column + 1 < columns.end) return b_at(column + 1, steps.begin);
    if (steps.end < plan_.steps) return b_at(columns.begin, steps.end);
    return b_at(columns.end < plan_.columns ? columns.end : 0, 0);
  }
  float* block_sums(int64_t row, int64_t column) const {
    return plan_.one_pass ? sums_ : sums_ + (column * plan_.block_rows + row) * kBlockSums;
  }

  const Product& p_;
  Plan plan_;
  const BFloat16* packed_b_;
  float* sums_;
  BFloat16* packed_a_;
  Tiles tiles_;
  Epilogue<Tiles, Out> epilogue_;
};

template <typename Tiles>
void multiply(const Share& share) {
  if (share.product.out == DType::f32)
    Multiplication<Tiles, float>(share).run();
  else
    Multiplication<Tiles, BFloat16>(share).run();
}

}  // namespace

void pack_b(const Product& p, Range steps, BFloat16* packed) {
  pack<true>(columns_of_b(p), {0, panels(p.n)}, steps, panels(p.k), packed + steps.begin * kStepElements);
}

int64_t scratch_bytes(const Product& p, const TileBlocking& blocking) {
  const Plan plan(p, blocking);
  return plan.sums_bytes() + plan.packed_a_bytes();
}

void multiply_amx(const Share& share) {
  multiply<AmxTiles>(share);
}
void multiply_emulated(const Share& share) {
  multiply<EmulatedTiles>(share);
}

}  // namespace qkv::tile

#else  // never called: tiles_available() is false

namespace qkv::tile {
void pack_b(const Product&, Range, BFloat16*) {}
int64_t scratch_bytes(const Product&, const TileBlocking&) {
  return 0;
}
void multiply_amx(const Share&) {}
void multiply_emulated(const Share&) {}
}  // namespace qkv::tile

#endif
