#include "qkv/kernels/row_product.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"
#include "qkv/kernels/scratch.h"

namespace qkv {
namespace {

// Rows of A in f32: its own memory, or a copy.
class Rows {
 public:
  explicit Rows(const Product& p) {
    if (p.a.type == WeightType::f32) {
      data = static_cast<const float*>(p.a.data), stride = p.a.stride;
      return;
    }
    float* to = copy_.emplace(p.m * p.k).data();
    data = to, stride = p.k;
    parallel_for(p.m, 16, [&](int64_t r, int64_t end) {
      for (; r < end; ++r)
        kernels().bf16.to_f32(p.k, static_cast<const BFloat16*>(p.a.from(r, 0).data), to + r * p.k);
    });
  }
  const float* data;
  int64_t stride;

 private:
  std::optional<Scratch> copy_;
};

}  // namespace

bool row_product_takes(const Product& p) {
  const bool types = !is_quantized(p.b.type) &&
                     (p.a.type == WeightType::f32 || (p.a.type == WeightType::bf16 && p.a.type == p.b.type));
  return p.m > 0 && p.k > 0 && types && !p.a.transposed && p.b.transposed;
}

void row_product(const Product& p) {
  if (p.n == 0) return;
  const Rows a(p);
  const bool direct = p.out == DType::f32 && !p.accumulate;
  const Scratch scratch(direct ? 0 : p.m * p.n);
  float* sums = direct ? static_cast<float*>(p.c) : scratch.data();
  const int64_t stride = direct ? p.c_stride : p.n;
  const auto finish = [&](int64_t first, int64_t last, int64_t begin, int64_t n) {
    for (int64_t r = first; r < last; ++r) {
      float* row = sums + r * stride + begin;
      if (p.bias) kernels().axpy(n, 1, p.bias + begin, row);
      if (direct) continue;
      const int64_t at = r * p.c_stride + begin;
      if (p.out == DType::f32) {
        kernels().axpy(n, 1, row, static_cast<float*>(p.c) + at);
      } else {
        auto* c = static_cast<BFloat16*>(p.c) + at;
        for (int64_t j = 0; j < n && p.accumulate; ++j) row[j] += static_cast<float>(c[j]);
        kernels().bf16.from_f32(n, row, c);
      }
    }
  };
  const auto compute = [&]<typename T>(const T* b) {
    // Rows [first, last) of C, columns [begin, end).
    const auto part = [&](int64_t first, int64_t last, int64_t begin, int64_t end) {
      const RowProduct<T> rows{
          last - first,          p.k,   a.data + first * a.stride, a.stride, b, p.b.stride,
          sums + first * stride, stride};
      if constexpr (std::is_same_v<T, Float16>)
        kernels().row_product_f16(rows, begin, end);
      else
        kernels().typed<T>().row_product(rows, begin, end);
      finish(first, last, begin, end - begin);
    };
    const int64_t elements = p.n * p.k;
    constexpr int64_t kSmall = 1 << 16;  // elements of B that fit into each processor's own caches
    if (p.m > kFewRows && elements <= kSmall) {
      // Each thread has the same rows in one operation after another, so that they stay in its caches.
      constexpr int64_t kLeast = 1 << 16;  // multiplications of a thread
      parallel_for(p.m, std::max(kFewRows, kLeast / elements),
                   [&](int64_t first, int64_t last) { part(first, last, 0, p.n); });
      return;
    }
    // If reading B is all, tasks of equal size read at most kGrain elements, and at least kLeast.
    constexpr int64_t kGrain = 1 << 18, kLeast = 1 << 14;
    const int64_t threads = num_pieces(elements, kLeast),
                  tasks = (elements / threads + kGrain - 1) / kGrain * threads,
                  at_once = p.m <= kFewRows
                                ? (p.n + tasks - 1) / tasks
                                : std::min<int64_t>(128, (p.n + num_threads() - 1) / num_threads());
    parallel_tasks((p.n + at_once - 1) / at_once, [&](int64_t task, int) {
      const int64_t begin = task * at_once;
      part(0, p.m, begin, std::min(p.n, begin + at_once));
    });
  };
  switch (p.b.type) {
    case WeightType::f32:
      return compute(static_cast<const float*>(p.b.data));
    case WeightType::f16:
      return compute(static_cast<const Float16*>(p.b.data));
    default:
      return compute(static_cast<const BFloat16*>(p.b.data));
  }
}

}  // namespace qkv
