#include "qkv/ops/source_attention.h"

#include <algorithm>
#include <cmath>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

void check_sizes(const char* op, const Tensor& q, const Tensor& keys, const Tensor& values,
                 std::span<const int32_t> offsets, const KeyLayout& layout) {
  for (const Tensor* x : {&q, &keys, &values})
    check(x->defined() && x->shape().rank() == 2 && x->dtype() == q.dtype(),
          "{}: queries, keys and values must be matrices of one type", op);
  check(q.width() == keys.width() && keys.dim(0) == values.dim(0),
        "{}: queries {} do not fit keys {} and values {}", op, q.shape(), keys.shape(), values.shape());
  const size_t sequences = layout.lengths.size();
  check(offsets.size() == sequences + 1 && offsets.front() == 0 && offsets.back() == q.dim(0) &&
            std::is_sorted(offsets.begin(), offsets.end()) && layout.block_offsets.size() == sequences,
        "{}: offsets of {} sequences do not divide {} queries", op, sequences, q.dim(0));
  for (size_t s = 0; s < sequences; ++s)
    check(layout.lengths[s] <= layout.block_rows && layout.block_offsets[s] < std::ssize(layout.blocks) &&
              layout.blocks[layout.block_offsets[s]] >= 0 &&
              layout.blocks[layout.block_offsets[s]] + layout.lengths[s] <= keys.dim(0),
          "{}: keys of sequence {} lie outside the {} rows, or in several blocks", op, s, keys.dim(0));
}

// Each sequence's backward task writes the gradients of its keys alone: sequences must not share rows.
void expect_disjoint_keys(const KeyLayout& layout) {
  std::vector<std::pair<int64_t, int64_t>> ranges;  // first row, end
  for (size_t s = 0; s < layout.lengths.size(); ++s) {
    const int64_t first = layout.blocks[layout.block_offsets[s]];
    if (layout.lengths[s] > 0) ranges.emplace_back(first, first + layout.lengths[s]);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    check(ranges[i].first >= ranges[i - 1].second,
          "source attention: keys that sequences share have no gradient: row {} is used twice",
          ranges[i].first);
}

// Sums in a fixed order of lanes, which compilers can keep side by side.
template <typename A, typename B>
float dot(int64_t n, const A* a, const B* b) {
  constexpr int64_t kLanes = 16;
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l)
      sums[l] += static_cast<float>(a[i + l]) * static_cast<float>(b[i + l]);
  float sum = 0;
  for (; i < n; ++i) sum += static_cast<float>(a[i]) * static_cast<float>(b[i]);
  for (const float s : sums) sum += s;
  return sum;
}
template <typename T>
void add_scaled(int64_t n, float factor, const T* x, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += factor * static_cast<float>(x[i]);
}

void softmax(std::vector<float>& x) {
  if (x.empty()) return;
  const float most = *std::max_element(x.begin(), x.end());
  float sum = 0;
  for (float& v : x) sum += v = std::exp(v - most);
  for (float& v : x) v /= sum;
}
// The gradient of the scores from that of their softmax a, in place.
void softmax_grad(std::span<const float> a, std::vector<float>& d) {
  const float mean = dot(std::ssize(d), a.data(), d.data());
  for (size_t j = 0; j < d.size(); ++j) d[j] = a[j] * (d[j] - mean);
}

// Queries [begin, end) of a sequence see `count` keys from row `first` on.
struct Range {
  int64_t begin, end, first, count;
};
template <typename F>
void for_each_sequence(std::span<const int32_t> offsets, const KeyLayout& layout, const F& f) {
  parallel_tasks(std::ssize(layout.lengths), [&](int64_t s, int) {
    f(s, Range{offsets[s], offsets[s + 1], layout.blocks[layout.block_offsets[s]], layout.lengths[s]});
  });
}

// How a query looks at its keys: those from number `begin` of its sequence on have the weights softmax
// times factor.
struct Look {
  int64_t begin = 0;
  std::vector<float> softmax, factors;
  std::vector<float> hidden;  // [keys, A] for additive scores: tanh(q + k_j)
};

// Gradients, in f32; each sequence has its own rows, and a row of dv.
struct Gradients {
  float *dq, *dkeys, *dvalues, *dparameter;
};

template <typename T>
struct Additive {
  int64_t width;
  const T *q, *keys;
  const float* v;

  void look(int64_t row, const Range& range, Look& look) const {
    look.softmax.resize(range.count);
    look.factors.assign(range.count, 1);
    look.hidden.resize(range.count * width);
    for (int64_t j = 0; j < range.count; ++j) {
      float* hidden = look.hidden.data() + j * width;
      const T *a = q + row * width, *b = keys + (range.first + j) * width;
      for (int64_t c = 0; c < width; ++c) hidden[c] = static_cast<float>(a[c]) + static_cast<float>(b[c]);
    }
    kernels().f32.activation(Activation::tanh, std::ssize(look.hidden), look.hidden.data(),
                             look.hidden.data());
    for (int64_t j = 0; j < range.count; ++j) look.softmax[j] = dot(width, v, look.hidden.data() + j * width);
    softmax(look.softmax);
  }
  // `g.dparameter`: gradient of v, one row per sequence.
  void grad(int64_t sequence, int64_t row, const Range& range, const Look& look,
            std::span<const float> dscores, std::span<const float> /*dfactors*/, const Gradients& g) const {
    float *dq = g.dq + row * width, *dv = g.dparameter + sequence * width;
    for (int64_t j = 0; j < range.count; ++j) {
      const float* hidden = look.hidden.data() + j * width;
      float* dk = g.dkeys + (range.first + j) * width;
      for (int64_t c = 0; c < width; ++c) {
        const float d = dscores[j] * v[c] * (1 - hidden[c] * hidden[c]);
        dv[c] += dscores[j] * hidden[c];
        dq[c] += d;
        dk[c] += d;
      }
    }
  }
};

template <typename T>
struct Local {
  int64_t width;
  const T *q, *keys;
  const float* u;
  float window;

  // The predicted place as a share of the keys: p / S.
  float part(int64_t row) const { return 1 / (1 + std::exp(-u[row])); }
  float variance() const { return window * window / 4; }

  void look(int64_t row, const Range& range, Look& look) const {
    const float place = part(row) * static_cast<float>(range.count);
    look.begin = std::max<int64_t>(0, static_cast<int64_t>(std::ceil(place - window)));
    const int64_t end = std::min(range.count, static_cast<int64_t>(std::floor(place + window)) + 1);
    look.softmax.clear();
    look.factors.clear();
    for (int64_t j = look.begin; j < end; ++j) {
      const float distance = static_cast<float>(j) - place;
      look.softmax.push_back(dot(width, q + row * width, keys + (range.first + j) * width));
      look.factors.push_back(std::exp(-distance * distance / (2 * variance())));
    }
    softmax(look.softmax);
  }
  // `g.dparameter`: gradient of u.
  void grad(int64_t /*sequence*/, int64_t row, const Range& range, const Look& look,
            std::span<const float> dscores, std::span<const float> dfactors, const Gradients& g) const {
    const auto count = static_cast<float>(range.count);
    const float place = part(row) * count;
    float dplace = 0;
    for (size_t i = 0; i < dscores.size(); ++i) {
      const int64_t j = look.begin + static_cast<int64_t>(i), key = (range.first + j) * width;
      add_scaled(width, dscores[i], keys + key, g.dq + row * width);
      add_scaled(width, dscores[i], q + row * width, g.dkeys + key);
      dplace += dfactors[i] * look.factors[i] * (static_cast<float>(j) - place) / variance();
    }
    g.dparameter[row] = dplace * place * (1 - part(row));
  }
};

// Weighted sums of values [M, width]: out [N, width].
template <typename T, typename Scores>
void forward(const Scores& scores, std::span<const int32_t> offsets, const KeyLayout& layout, int64_t width,
             const T* values, T* out) {
  for_each_sequence(offsets, layout, [&](int64_t, const Range& range) {
    Look look;
    std::vector<float> sum(width);
    for (int64_t row = range.begin; row < range.end; ++row) {
      scores.look(row, range, look);
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (size_t i = 0; i < look.softmax.size(); ++i)
        add_scaled(width, look.softmax[i] * look.factors[i],
                   values + (range.first + look.begin + static_cast<int64_t>(i)) * width, sum.data());
      for (int64_t c = 0; c < width; ++c) out[row * width + c] = T(sum[c]);
    }
  });
}

template <typename T, typename Scores>
void gradient(const Scores& scores, std::span<const int32_t> offsets, const KeyLayout& layout, int64_t width,
              const T* values, const T* dout, const Gradients& g) {
  for_each_sequence(offsets, layout, [&](int64_t s, const Range& range) {
    Look look;
    std::vector<float> dscores, dfactors;
    for (int64_t row = range.begin; row < range.end; ++row) {
      scores.look(row, range, look);
      const T* d = dout + row * width;
      dscores.resize(look.softmax.size());
      dfactors.resize(look.softmax.size());
      for (size_t i = 0; i < look.softmax.size(); ++i) {
        const int64_t at = (range.first + look.begin + static_cast<int64_t>(i)) * width;
        const float dweight = dot(width, d, values + at);
        add_scaled(width, look.softmax[i] * look.factors[i], d, g.dvalues + at);
        dscores[i] = dweight * look.factors[i];
        dfactors[i] = dweight * look.softmax[i];
      }
      softmax_grad(look.softmax, dscores);
      scores.grad(s, row, range, look, dscores, dfactors, g);
    }
  });
}

// The inputs of either op. The gradient computes the rest again.
struct Inputs {
  Tensor q, keys, values, parameter;
  std::vector<int32_t> offsets;
  KeyLayout layout;
  int64_t window;  // 0: additive

  // Calls f(scores, T{}) with additive or local scores.
  template <typename F>
  void with_scores(const F& f) const {
    with_float_type("source attention", q.dtype(), [&]<typename T>(T type) {
      if (window == 0)
        f(Additive<T>{q.width(), q.data<T>(), keys.data<T>(), parameter.data<float>()}, type);
      else
        f(Local<T>{q.width(), q.data<T>(), keys.data<T>(), parameter.data<float>(),
                   static_cast<float>(window)},
          type);
    });
  }
};

class SourceAttentionNode : public Node {
 public:
  explicit SourceAttentionNode(const Inputs& inputs) : in_(inputs) {
    for (Tensor* x : {&in_.q, &in_.keys, &in_.values, &in_.parameter}) {
      add_input(*x);
      *x = x->detach();
    }
  }
  std::string_view name() const override { return "source_attention"; }
  void backward(std::span<Tensor> grads) override {
    const int64_t sequences = std::ssize(in_.layout.lengths);
    const auto zeros = [](const Tensor& like) { return Tensor::zeros(like.shape(), DType::f32); };
    Tensor dq = zeros(in_.q), dkeys = zeros(in_.keys), dvalues = zeros(in_.values);
    const bool additive = in_.window == 0;  // all sequences share its v
    Tensor dparameter =
        additive ? Tensor::zeros({sequences, in_.parameter.count()}, DType::f32) : zeros(in_.parameter);
    in_.with_scores([&]<typename T>(const auto& scores, T) {
      gradient<T>(scores, in_.offsets, in_.layout, in_.values.width(), in_.values.data<T>(),
                  grads[0].data<T>(),
                  {dq.mutable_data<float>(), dkeys.mutable_data<float>(), dvalues.mutable_data<float>(),
                   dparameter.mutable_data<float>()});
    });
    give(0, convert(dq, in_.q.dtype()));
    give(1, convert(dkeys, in_.q.dtype()));
    give(2, convert(dvalues, in_.q.dtype()));
    if (!additive) return give(3, std::move(dparameter));
    Tensor dv = zeros(in_.parameter);
    for (int64_t s = 0; s < sequences; ++s)
      add_scaled(dv.count(), 1, dparameter.data<float>() + s * dv.count(), dv.mutable_data<float>());
    give(3, std::move(dv));
  }

 private:
  Inputs in_;
};

Tensor attend(const Inputs& in) {
  Tensor out = Tensor::empty({in.q.dim(0), in.values.width()}, in.q.dtype());
  in.with_scores([&]<typename T>(const auto& scores, T) {
    forward<T>(scores, in.offsets, in.layout, in.values.width(), in.values.data<T>(), out.mutable_data<T>());
  });
  if (wants_grad({&in.q, &in.keys, &in.values, &in.parameter})) {
    expect_disjoint_keys(in.layout);
    connect(out, std::make_shared<SourceAttentionNode>(in));
  }
  return out;
}

}  // namespace

Tensor additive_attention(const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& v,
                          std::span<const int32_t> offsets, const KeyLayout& layout) {
  check_sizes("additive_attention", q, keys, values, offsets, layout);
  expect_shape("additive_attention", "v", v, {q.width()});
  expect_dtype("additive_attention", "v", v, DType::f32);
  return attend({q, keys, values, v, {offsets.begin(), offsets.end()}, layout, 0});
}

Tensor local_attention(const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& u,
                       int64_t window, std::span<const int32_t> offsets, const KeyLayout& layout) {
  check_sizes("local_attention", q, keys, values, offsets, layout);
  expect_shape("local_attention", "u", u, {q.dim(0), 1});
  expect_dtype("local_attention", "u", u, DType::f32);
  check(window > 0, "local_attention: the window must be positive, got {}", window);
  return attend({q, keys, values, u, {offsets.begin(), offsets.end()}, layout, window});
}

}  // namespace qkv
