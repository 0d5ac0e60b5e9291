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
#include "qkv/kernels/tile_product.h"
#include "qkv/tensor/storage.h"

namespace qkv {
namespace {

float element(const void* x, DType t, int64_t i) {
  return t == DType::f32 ? static_cast<const float*>(x)[i]
                         : static_cast<float>(static_cast<const BFloat16*>(x)[i]);
}

}  // namespace

void generic_matrix_product(const Product& p) {
  parallel_for(p.m, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        float sum = p.bias ? p.bias[j] : 0;
        for (int64_t l = 0; l < p.k; ++l)
          sum += element(p.a, p.in, p.a_transposed ? l * p.a_stride + i : i * p.a_stride + l) *
                 element(p.b, p.in, p.b_transposed ? j * p.b_stride + l : l * p.b_stride + j);
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

memory::data_type onednn_type(DType t) {
  return t == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc matrix(int64_t rows, int64_t columns, DType t, int64_t stride, bool transposed) {
  return {{rows, columns}, onednn_type(t), transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

Prepared prepare(const Product& p) {
  Prepared out;
  const auto a = matrix(p.m, p.k, p.in, p.a_stride, p.a_transposed);
  const auto b = matrix(p.k, p.n, p.in, p.b_stride, p.b_transposed);
  const auto c = matrix(p.m, p.n, p.out, p.c_stride, false);
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
  const int flags = (p.in == DType::bf16) | (p.out == DType::bf16) << 1 | p.a_transposed << 2 |
                    p.b_transposed << 3 | (p.bias != nullptr) << 4 | p.accumulate << 5;
  const Key key{p.m, p.n, p.k, p.a_stride, p.b_stride, p.c_stride, flags, num_threads()};
  if (const auto it = cache.find(key); it != cache.end()) return it->second;
  if (cache.size() >= 4096) cache.clear();  // bounds the cache if lengths keep changing
  return cache.emplace(key, prepare(p)).first->second;
}

class Scratch {
 public:
  explicit Scratch(int64_t floats)
      : storage_(Storage::allocate(static_cast<size_t>(floats) * sizeof(float))) {}
  float* data() const { return reinterpret_cast<float*>(storage_->data()); }

 private:
  std::shared_ptr<Storage> storage_;
};

void expand(const void* x, DType t, int64_t rows, int64_t columns, int64_t stride, float* out) {
  parallel_for(rows, 16, [&](int64_t r, int64_t end) {
    for (; r < end; ++r)
      if (t == DType::bf16)
        kernels().bf16.to_f32(columns, static_cast<const BFloat16*>(x) + r * stride, out + r * columns);
      else
        std::memcpy(out + r * columns, static_cast<const float*>(x) + r * stride, columns * sizeof(float));
  });
}

// Writes `from` [m, n], rounded to C's type, to the columns of C from n0 on.
void put(const Product& p, const float* from, int64_t n0, int64_t n) {
  parallel_for(p.m, 16, [&](int64_t r, int64_t end) {
    for (; r < end; ++r) {
      const float* row = from + r * n;
      if (p.out == DType::bf16)
        kernels().bf16.from_f32(n, row, static_cast<BFloat16*>(p.c) + r * p.c_stride + n0);
      else
        std::memcpy(static_cast<float*>(p.c) + r * p.c_stride + n0, row, n * sizeof(float));
    }
  });
}

// True if our packed product is faster than oneDNN's. For bf16 it is if the processor has no bf16 products.
// For f32 it is if an operand that is not transposed has rows that begin in the same cache sets: oneDNN
// does not pack such operands.
bool is_packed(const Product& p) {
  constexpr int64_t kWorth = 1 << 12;  // multiplications; with fewer, packing does not pay off
  if (kernels().product == nullptr) return false;
  if (p.in == DType::bf16) return !bf16_is_fast() && p.m * p.n * p.k >= kWorth;
  const auto collides = [](int64_t stride) { return stride > 2048 && stride % 1024 == 0; };
  return !p.b_transposed && p.m >= 256 && p.n >= 16 && p.k >= 16 &&
         (collides(p.b_stride) || (!p.a_transposed && collides(p.a_stride)));
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
      s.a = static_cast<const std::byte*>(p.a) + (p.a_transposed ? m0 : m0 * p.a_stride) * size_of(p.in);
      s.b = static_cast<const std::byte*>(p.b) + (p.b_transposed ? n0 * p.b_stride : n0) * size_of(p.in);
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

// True for a few rows of activations times a weight [n, k]: the time is that of reading the weight once.
bool is_thin(const Product& p) {
  return p.m <= kThinRows && !p.a_transposed && p.b_transposed && p.n >= 16 && p.k >= 16;
}

void thin_product(const Product& p) {
  const Scratch a(p.m * p.k), c(p.m * p.n);
  expand(p.a, p.in, p.m, p.k, p.a_stride, a.data());
  const auto columns = [&]<typename T>(const T* b) {
    const ThinProduct<T> thin{p.m, p.k, a.data(), b, p.b_stride, c.data(), p.n};
    constexpr int64_t kGrain = 1 << 18;  // elements of B per task
    const int64_t columns_a_task = std::max<int64_t>(8, kGrain / p.k);
    parallel_tasks((p.n + columns_a_task - 1) / columns_a_task, [&](int64_t task, int) {
      const int64_t begin = task * columns_a_task;
      kernels().typed<T>().thin_product(thin, begin, std::min(p.n, begin + columns_a_task));
    });
  };
  p.in == DType::f32 ? columns(static_cast<const float*>(p.b)) : columns(static_cast<const BFloat16*>(p.b));
  for (int64_t r = 0; r < p.m; ++r) {
    float* row = c.data() + r * p.n;
    if (p.bias) kernels().axpy(p.n, 1, p.bias, row);
    if (!p.accumulate) continue;
    for (int64_t j = 0; j < p.n; ++j) row[j] += element(p.c, p.out, r * p.c_stride + j);
  }
  put(p, c.data(), 0, p.n);
}

}  // namespace

void onednn_product(const Product& p) {
  share_openmp();
  try {
    Prepared& ready = prepared(p);
    check(ready.supported, "matrix product: oneDNN has no {} product for m {}, n {}, k {}", name_of(p.in),
          p.m, p.n, p.k);
    ready.arguments[DNNL_ARG_SRC].set_data_handle(const_cast<void*>(p.a));
    ready.arguments[DNNL_ARG_WEIGHTS].set_data_handle(const_cast<void*>(p.b));
    ready.arguments[DNNL_ARG_DST].set_data_handle(p.c);
    if (p.bias) ready.arguments[DNNL_ARG_BIAS].set_data_handle(const_cast<float*>(p.bias));
    thread_local dnnl::stream stream(engine());
    ready.primitive.execute(stream, ready.arguments);
    stream.wait();
  } catch (const dnnl::error& e) {
    fail("matrix product: oneDNN failed for m {}, n {}, k {}: {}", p.m, p.n, p.k, e.what());
  }
}

void matrix_product(const Product& p) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return generic_matrix_product(p);
  if (is_thin(p)) return thin_product(p);
  if (is_packed(p)) return packed_product(p);
  if (p.in == DType::bf16 && !bf16_is_fast()) return generic_matrix_product(p);  // small, or without SIMD
  if (tile_product_takes(p)) return tile_product(p, TileUnit::amx, tile_blocking(p));
  onednn_product(p);
}

}  // namespace qkv
