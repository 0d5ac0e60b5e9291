#include "qkv/kernels/quantized_product.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"
#include "qkv/kernels/quantized_kernels.h"
#include "qkv/kernels/scratch.h"
#include "qkv/quant/block_integers.h"
#include "qkv/tensor/storage.h"

namespace qkv {
namespace {

// Rows from which on B's blocks are decoded once for all rows.
constexpr int64_t kPanelRows = 4;

// Memory for the activations in 8 bits.
class Activations {
 public:
  explicit Activations(const Product& p)
      : rows_{p.m, p.k, layout_of(p.b.type).elements, p.k + kPad, nullptr, nullptr, nullptr, nullptr},
        factors_(p.k / rows_.block),
        groups_(p.k / kMinimumGroup),
        storage_(
            Storage::allocate(static_cast<size_t>(p.m * (rows_.stride * 3 + factors_ * 4 + groups_ * 2)))) {
    const int64_t stride = rows_.stride;
    auto* e = reinterpret_cast<float*>(storage_->data());
    auto* x = reinterpret_cast<int16_t*>(e + p.m * factors_);
    auto* sums = x + p.m * stride;
    auto* bytes = reinterpret_cast<int8_t*>(sums + p.m * groups_);
    rows_.e = e, rows_.x = x, rows_.bytes = bytes, rows_.sums = sums;
    parallel_for(p.m, 1, [&](int64_t r, int64_t end) {
      std::vector<float> wide(p.a.type == WeightType::bf16 ? p.k : 0);
      for (; r < end; ++r) {
        const void* row = p.a.from(r, 0).data;
        if (!wide.empty()) kernels().bf16.to_f32(p.k, static_cast<const BFloat16*>(row), wide.data());
        quantized_kernels().quantize(
            p.k, rows_.block, wide.empty() ? static_cast<const float*>(row) : wide.data(), x + r * stride,
            bytes + r * stride, e + r * factors_, sums + r * groups_);
      }
    });
  }
  const QuantizedRows& rows() const { return rows_; }

 private:
  static constexpr int64_t kPad = 64;  // rows 4,096 bytes apart would share the same lines of the cache

  QuantizedRows rows_;
  int64_t factors_, groups_;
  std::shared_ptr<Storage> storage_;
};

// Adds the bias and the old C to y [m, count], and writes columns [begin, begin + count) of C.
void finish(const Product& p, int64_t begin, int64_t count, float* y, int64_t y_stride, int64_t first_row,
            int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = y + r * y_stride;
    const int64_t at = (first_row + r) * p.c_stride + begin;
    if (p.bias != nullptr) kernels().axpy(count, 1, p.bias + begin, row);
    if (p.out == DType::f32) {
      auto* c = static_cast<float*>(p.c) + at;
      if (p.accumulate) kernels().axpy(count, 1, c, row);
      std::memcpy(c, row, count * sizeof(float));
    } else {
      auto* c = static_cast<BFloat16*>(p.c) + at;
      for (int64_t j = 0; j < count && p.accumulate; ++j) row[j] += static_cast<float>(c[j]);
      kernels().bf16.from_f32(count, row, c);
    }
  }
}

}  // namespace

void quantized_product(const Product& p) {
  check(
      is_quantized(p.b.type) && p.b.transposed && !p.a.transposed && p.k % layout_of(p.b.type).elements == 0,
      "quantised product: m {}, n {}, k {} of {}", p.m, p.n, p.k, name_of(p.b.type));
  const Activations activations(p);
  const QuantizedRows& a = activations.rows();
  const QuantizedKernels& table = quantized_kernels();
  if (p.m < kPanelRows) {
    // Reading B is all: few long tasks, as many for each thread.
    constexpr int64_t kGrain = 1 << 20;  // elements of B
    const int64_t threads = num_threads(),
                  rounds = std::max<int64_t>(2, (p.n * p.k - 1) / (threads * kGrain) + 1),
                  at_once = ((p.n - 1) / (threads * rounds) / 16 + 1) * 16;
    parallel_tasks((p.n + at_once - 1) / at_once, [&](int64_t task, int) {
      const int64_t begin = task * at_once, count = std::min(at_once, p.n - begin);
      std::vector<float> y(count);
      for (int64_t r = 0; r < p.m; ++r) {
        table.dots(a, r, p.b.from(begin, 0), count, y.data());
        finish(p, begin, count, y.data(), count, r, 1);
      }
    });
    return;
  }
  parallel_tasks((p.n + kPanelColumns - 1) / kPanelColumns, [&](int64_t task, int) {
    const int64_t begin = task * kPanelColumns, count = std::min(kPanelColumns, p.n - begin);
    const Scratch sums(p.m * kPanelColumns);
    table.panel(a, p.b.from(begin, 0), count, sums.data(), kPanelColumns);
    finish(p, begin, count, sums.data(), kPanelColumns, 0, p.m);
  });
}

}  // namespace qkv
