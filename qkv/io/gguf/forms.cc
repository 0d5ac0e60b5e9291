#include "qkv/io/gguf/forms.h"

#include <algorithm>
#include <cstring>

#include "qkv/base/parallel.h"
#include "qkv/quant/quantize.h"

namespace qkv {
namespace {

Span<const std::byte> bytes_of(const Weight& w) {
  return w.is_quantized() ? w.quantized().blocks() : w.dense().value_bytes();
}

// An uninitialised tensor of the same type.
Weight like(const Weight& w, Shape shape) {
  if (w.is_quantized()) return QuantizedTensor::empty(shape, w.type());
  return Tensor::empty(shape, w.dense().dtype());
}

// The bytes of a tensor that like() made.
Span<std::byte> mutable_bytes_of(const Weight& w) {
  if (w.is_quantized()) return w.quantized().mutable_blocks();
  Tensor dense = w.dense();
  return dense.mutable_value_bytes();
}

int64_t row_bytes(const Weight& w, int64_t rows) {
  return rows == 0 ? 0 : static_cast<int64_t>(w.bytes()) / rows;
}

// Row i of the result is row order[i]; rows are along the first axis.
Weight gathered(const Weight& w, const std::vector<int64_t>& order) {
  Weight out = like(w, w.shape());
  const int64_t size = row_bytes(w, w.dim(0));
  const Span<const std::byte> from = bytes_of(w);
  const Span<std::byte> to = mutable_bytes_of(out);
  parallel_for(std::ssize(order), 64, [&](int64_t i, int64_t end) {
    for (; i < end; ++i) {
      const auto row = from.subspan(order[static_cast<size_t>(i)] * size, size);
      std::copy(row.begin(), row.end(), to.subspan(i * size, size).begin());
    }
  });
  return out;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> out(order.size());
  for (size_t i = 0; i < order.size(); ++i) out[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return out;
}

template <typename T, typename Place>
Tensor picked_as(const Tensor& x, Shape shape, const Place& place) {
  Tensor out = Tensor::empty(shape, x.dtype());
  const auto from = x.values<T>();
  int64_t i = 0;
  for (T& y : out.mutable_values<T>()) y = from[place(i++)];
  return out;
}

// Element i of the result is element place(i).
template <typename Place>
Tensor picked(const Tensor& x, Shape shape, const Place& place) {
  switch (x.dtype()) {
    case DType::f32:
      return picked_as<float>(x, shape, place);
    case DType::bf16:
      return picked_as<BFloat16>(x, shape, place);
    case DType::f16:
      return picked_as<Float16>(x, shape, place);
    default:
      fail("gguf: expected floating-point numbers, got {}", name_of(x.dtype()));
  }
}

// [..., in, out] -> [..., out, in].
Tensor transposed(const Tensor& x) {
  const Shape& s = x.shape();
  const int64_t rows = s[-2], columns = s[-1], size = rows * columns;
  const Shape shape = s.rank() == 3 ? Shape{s[0], columns, rows} : Shape{columns, rows};
  return picked(x, shape, [=](int64_t i) { return i / size * size + i % rows * columns + i % size / rows; });
}

void expect_dense(const Weight& w, const std::string& at) {
  check(w.dense().defined(), "{}: expected f32, f16 or bf16, because its numbers move within rows", at);
}

// The row of Hugging Face's projection for each row of the GGUF file's.
std::vector<int64_t> rotary_order(int64_t heads, int64_t width) {
  std::vector<int64_t> order;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < width; ++i) order.push_back(h * width + i % 2 * (width / 2) + i / 2);
  return order;
}

std::vector<int64_t> group_order(const AttentionSpec& a) {
  const int64_t share = a.heads / a.kv_heads, d = a.d_qk, group = (share + 2) * d;
  std::vector<int64_t> order;
  const auto add = [&](int64_t first) {
    for (int64_t i = 0; i < d; ++i) order.push_back(first + i);
  };
  for (int64_t h = 0; h < a.heads; ++h) add(h / share * group + h % share * d);
  for (const int64_t part : {share, share + 1})
    for (int64_t g = 0; g < a.kv_heads; ++g) add(g * group + part * d);
  return order;
}

// The order of rows of a form that only reorders; empty for others. The tensor has as many rows, or Error is
// thrown before a list that long is made.
std::vector<int64_t> order_of(const GgufConversion& c, const Weight& w) {
  const AttentionSpec& a = c.spec.attention;
  int64_t rows = 0;
  if (c.form == GgufForm::rotary_queries) rows = a.heads * a.d_qk;
  if (c.form == GgufForm::rotary_keys) rows = a.kv_heads * a.d_qk;
  if (c.form == GgufForm::groups) rows = (a.heads + 2 * a.kv_heads) * a.d_qk;
  if (rows == 0) return {};
  check(w.shape().rank() <= 2 && w.shape().rank() > 0 && w.dim(0) == rows, "{}: expected {} rows, got {}",
        c.at, rows, w.shape());
  check(a.heads % a.kv_heads == 0 && a.d_qk % 2 == 0, "{}: {} heads of width {} with {} of keys", c.at,
        a.heads, a.d_qk, a.kv_heads);
  if (c.form == GgufForm::groups) return group_order(a);
  return rotary_order(c.form == GgufForm::rotary_queries ? a.heads : a.kv_heads, a.d_qk);
}

Weight plus(const Weight& w, float number, const std::string& at) {
  expect_dense(w, at);
  Tensor out = as_f32(w).clone();
  for (float& x : out.mutable_values<float>()) x += number;
  return out;
}

void expect_rank(const Weight& w, int rank, const std::string& at) {
  check(w.shape().rank() == rank, "{}: expected {} axes, got {}", at, rank, w.shape());
}

// Every second column as rows.
Weight half_of_columns(const Weight& w, int64_t first, const std::string& at) {
  expect_dense(w, at);
  const Shape& s = w.shape();
  check((s.rank() == 2 || s.rank() == 3) && s[-1] % 2 == 0, "{}: expected an even number of columns, got {}",
        at, s);
  const int64_t half = s[-1] / 2, out = s[-1];
  if (s.rank() == 2)
    return picked(w.dense(), {s[0], half},
                  [=](int64_t i) { return i / half * out + 2 * (i % half) + first; });
  const int64_t in = s[1], size = half * in;
  return picked(w.dense(), {s[0], half, in},
                [=](int64_t i) { return i / size * in * out + i % in * out + 2 * (i % size / in) + first; });
}

// The extents of a projection from a latent vector: of a head's keys without positions and of its values.
struct LatentExtents {
  int64_t heads, keys, values, latent;
};
LatentExtents latent_extents(const ModelSpec& s, int64_t latent) {
  const AttentionSpec& a = s.attention;
  return {a.heads, a.d_qk - a.rotary.width, a.d_vo, latent};
}

Weight latent_part(const GgufConversion& c, const Weight& w) {
  expect_rank(w, 2, c.at);
  const LatentExtents e = latent_extents(c.spec, w.dim(1));
  const int64_t head = e.keys + e.values;
  check(w.dim(0) == e.heads * head, "{}: expected {} rows, got {}", c.at, e.heads * head, w.shape());
  expect_dense(w, c.at);
  if (c.form == GgufForm::latent_values) {
    const int64_t size = e.values * e.latent;
    return picked(w.dense(), {e.heads, e.values, e.latent},
                  [=](int64_t i) { return (i / size * head + e.keys) * e.latent + i % size; });
  }
  const int64_t size = e.latent * e.keys;
  return picked(w.dense(), {e.heads, e.latent, e.keys},
                [=](int64_t i) { return (i / size * head + i % e.keys) * e.latent + i % size / e.keys; });
}

}  // namespace

Tensor as_f32(const Weight& w) {
  if (w.dense().defined() && w.dense().dtype() == DType::f32) return w.dense();
  Tensor out = Tensor::empty(w.shape(), DType::f32);
  const int64_t rows = out.rows(), width = out.width(), size = row_bytes(w, rows);
  const Span<const std::byte> from = bytes_of(w);
  for (int64_t r = 0; r < rows; ++r)
    dequantize_row(w.type(), from.subspan(r * size, size).data(), width, out.mutable_row<float>(r).data());
  return out;
}

Weight to_gguf_form(const GgufConversion& c, const Weight& w) {
  if (const auto order = order_of(c, w); !order.empty()) return gathered(w, order);
  switch (c.form) {
    case GgufForm::plus_one:
      return plus(w, 1, c.at);
    case GgufForm::transposed:
    case GgufForm::stack_transposed:
      if (w.shape().rank() < (c.form == GgufForm::transposed ? 2 : 3)) return w;  // a bias
      expect_dense(w, c.at);
      return transposed(w.dense());
    case GgufForm::one_row:
      check(w.shape().rank() == 2 && w.dim(0) == 1, "{}: expected one row, got {}", c.at, w.shape());
      return w.reshape({w.dim(1)});
    case GgufForm::even_columns:
    case GgufForm::odd_columns:
      return half_of_columns(w, c.form == GgufForm::odd_columns ? 1 : 0, c.at);
    case GgufForm::latent_keys:
    case GgufForm::latent_values:
      return latent_part(c, w);
    default:
      return w;
  }
}

Weight from_gguf_form(const GgufConversion& c, const Weight& w) {
  if (const auto order = order_of(c, w); !order.empty()) return gathered(w, inverse(order));
  switch (c.form) {
    case GgufForm::plus_one:
      return plus(w, -1, c.at);
    case GgufForm::transposed:
      return w.shape().rank() == 2 && w.dense().defined() ? Weight(transposed(w.dense())) : w;
    case GgufForm::stack_transposed:
      if (w.shape().rank() < 3) return w;
      if (w.dense().defined()) return transposed(w.dense());
      return w.reshape({w.dim(0) * w.dim(1), w.dim(2)});
    case GgufForm::one_row:
      expect_rank(w, 1, c.at);
      return w.reshape({1, w.dim(0)});
    default:
      return w;
  }
}

Weight stacked(const std::vector<Weight>& tensors, const std::string& at) {
  const Weight& first = tensors.front();
  std::vector<int64_t> extents = {std::ssize(tensors)};
  for (int i = 0; i < first.shape().rank(); ++i) extents.push_back(first.dim(i));
  check(first.shape().rank() < Shape::kMaxRank, "{}: got {}", at, first.shape());
  Weight out = like(first, Shape(std::span(extents)));
  const Span<std::byte> to = mutable_bytes_of(out);
  const auto size = static_cast<int64_t>(first.bytes());
  int64_t begin = 0;
  for (const Weight& w : tensors) {
    check(w.defined(), "{}: one of the {} tensors that it consists of is missing", at, tensors.size());
    check(w.type() == first.type() && w.shape() == first.shape(),
          "{}: expected {} tensors {} of one type, got {}", at, tensors.size(), first.shape(), w.shape());
    const auto from = bytes_of(w);
    std::copy(from.begin(), from.end(), to.subspan(begin, size).begin());
    begin += size;
  }
  return out;
}

Weight unstacked(const Weight& w, int64_t i) {
  std::vector<int64_t> extents;
  for (int axis = 1; axis < w.shape().rank(); ++axis) extents.push_back(w.dim(axis));
  return w.slice_rows(i, i + 1).reshape(Shape(std::span(extents)));
}

Weight joined_columns(const Weight& even, const Weight& odd, const std::string& at) {
  const Shape& s = even.shape();
  check(s == odd.shape() && (s.rank() == 2 || s.rank() == 3), "{}: its two halves are {} and {}", at, s,
        odd.shape());
  const int64_t experts = s[0], half = s[1];
  if (!even.dense().defined() || !odd.dense().defined() || even.type() != odd.type()) {
    expect_rank(even, 3, at);
    std::vector<Weight> parts;
    for (int64_t e = 0; e < experts; ++e)
      for (const Weight* w : {&even, &odd}) parts.push_back(unstacked(*w, e));
    return Weight::stack(std::move(parts));
  }
  const std::vector<Weight> both = {even, odd};
  const Tensor pair = stacked(both, at).dense();  // [2, E, out / 2, in] or [2, E, out / 2]
  const int64_t out = 2 * half, all = even.shape().count();
  if (s.rank() == 2)
    return picked(pair, {experts, out},
                  [=](int64_t i) { return i % 2 * all + i / out * half + i % out / 2; });
  const int64_t in = s[2], size = in * out;
  return picked(pair, {experts, in, out}, [=](int64_t i) {
    return i % 2 * all + (i / size * half + i % out / 2) * in + i % size / out;
  });
}

Weight joined_latents(const Weight& keys, const Weight& values, const ModelSpec& spec,
                      const std::string& at) {
  expect_rank(keys, 3, at);
  expect_rank(values, 3, at);
  const LatentExtents e = latent_extents(spec, keys.dim(1));
  check(keys.shape() == Shape{e.heads, e.latent, e.keys} &&
            values.shape() == Shape{e.heads, e.values, e.latent},
        "{}: its keys and values are {} and {}, which are not the model's", at, keys.shape(), values.shape());
  const bool same = keys.dense().defined() && values.dense().defined() && keys.type() == values.type();
  const Tensor k = same ? keys.dense() : as_f32(keys), v = same ? values.dense() : as_f32(values);
  // Both in one tensor, so that each element has one place.
  const int64_t head = e.keys + e.values, after = k.count();
  Tensor pair = Tensor::empty({after + v.count()}, k.dtype());
  pair.slice_rows(0, after).copy(k.reshape({after}));
  pair.slice_rows(after, pair.count()).copy(v.reshape({v.count()}));
  return picked(pair, {e.heads * head, e.latent}, [=](int64_t i) {
    const int64_t row = i / e.latent, column = i % e.latent, h = row / head, r = row % head;
    return r < e.keys ? (h * e.latent + column) * e.keys + r
                      : after + (h * e.values + r - e.keys) * e.latent + column;
  });
}

}  // namespace qkv
