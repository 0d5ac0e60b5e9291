#include "qkv/ops/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/weight_product.h"

namespace qkv {
namespace {

// Added to sums of affinities: sigmoids may all be 0, and their quotients are then 0, too.
constexpr float kTiny = 1e-20F;

// Affinities f32 [N, E].
Tensor affinities(const Tensor& logits, RouterScore score) {
  Tensor p = logits.clone();
  for (int64_t n = 0; n < p.rows(); ++n) {
    float* row = p.mutable_data<float>() + n * p.width();
    if (score == RouterScore::sigmoid) {
      for (int64_t e = 0; e < p.width(); ++e) row[e] = 1 / (1 + std::exp(-row[e]));
      continue;
    }
    const float top = *std::max_element(row, row + p.width());
    float sum = 0;
    for (int64_t e = 0; e < p.width(); ++e) sum += row[e] = std::exp(row[e] - top);
    for (int64_t e = 0; e < p.width(); ++e) row[e] /= sum;
  }
  return p;
}

// The indices of the `count` best scores, the best first; of equal scores the first.
void best(const std::vector<float>& scores, int64_t count, std::vector<int32_t>& order) {
  order.resize(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int32_t a, int32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
}

// Sets the scores of experts outside the best groups to 0.
void keep_best_groups(const ChoiceOptions& o, std::vector<float>& scores, std::vector<int32_t>& order) {
  const int64_t size = std::ssize(scores) / o.groups;
  std::vector<float> of_group(o.groups);
  for (int64_t g = 0; g < o.groups; ++g) {
    std::vector<float> its(scores.begin() + g * size, scores.begin() + (g + 1) * size);
    const int64_t taken = o.score == RouterScore::sigmoid ? std::min<int64_t>(2, size) : 1;
    std::partial_sort(its.begin(), its.begin() + taken, its.end(), std::greater<>());
    of_group[g] = std::accumulate(its.begin(), its.begin() + taken, 0.0F);
  }
  best(of_group, o.chosen_groups, order);
  std::vector<bool> kept(o.groups);
  for (int64_t g = 0; g < o.chosen_groups; ++g) kept[order[g]] = true;
  for (int64_t e = 0; e < std::ssize(scores); ++e)
    if (!kept[e / size]) scores[e] = 0;
}

// The gradient of w_j = scale p_j (/ sum of the chosen p), and of the load-balancing loss.
class ChoiceNode : public Node {
 public:
  ChoiceNode(const Tensor& logits, const Tensor& affinities, const Indices& experts, const ChoiceOptions& o)
      : p_(affinities), experts_(experts), o_(o) {
    add_input(logits);
  }
  std::string_view name() const override { return "choose_experts"; }
  void backward(std::span<Tensor> grads) override {
    const int64_t rows = p_.rows(), count = p_.width(), k = experts_.width();
    Tensor dlogits = Tensor::zeros(p_.shape(), DType::f32);
    std::vector<float> load(count);  // f_i E balance / N
    for (const int32_t e : experts_.values())
      load[e] +=
          o_.balance * static_cast<float>(count) / (static_cast<float>(rows) * static_cast<float>(rows));
    for (int64_t n = 0; n < rows; ++n) {
      const float* p = p_.data<float>() + n * count;
      const auto chosen = experts_.row(n);
      float* dp = dlogits.mutable_data<float>() + n * count;
      if (o_.balance > 0) balance_gradient(p, load, dp);
      if (grads[0].defined()) {
        const float* dw = grads[0].data<float>() + n * k;
        float sum = kTiny, dot = 0;
        for (int64_t j = 0; j < k; ++j) sum += p[chosen[j]], dot += dw[j] * p[chosen[j]];
        for (int64_t j = 0; j < k; ++j)
          dp[chosen[j]] += o_.scale * (o_.renormalized ? (dw[j] - dot / sum) / sum : dw[j]);
      }
      float mean = 0;
      if (o_.score == RouterScore::softmax)
        for (int64_t e = 0; e < count; ++e) mean += dp[e] * p[e];
      for (int64_t e = 0; e < count; ++e)
        dp[e] = p[e] * (o_.score == RouterScore::softmax ? dp[e] - mean : (1 - p[e]) * dp[e]);
    }
    give(0, std::move(dlogits));
  }

 private:
  // Sigmoid affinities enter the load-balancing loss as shares of their sum.
  void balance_gradient(const float* p, const std::vector<float>& load, float* dp) const {
    if (o_.score == RouterScore::softmax) {
      for (size_t e = 0; e < load.size(); ++e) dp[e] += load[e];
      return;
    }
    float sum = kTiny, dot = 0;
    for (size_t e = 0; e < load.size(); ++e) sum += p[e], dot += p[e] * load[e];
    for (size_t e = 0; e < load.size(); ++e) dp[e] += (load[e] - dot / sum) / sum;
  }

  Tensor p_;
  Indices experts_;
  ChoiceOptions o_;
};

}  // namespace

Choice choose_experts(const Tensor& logits, const ChoiceOptions& o) {
  check(logits.defined() && logits.shape().rank() == 2, "choose_experts: expected logits [N, E]");
  expect_dtype("choose_experts", "logits", logits, DType::f32);
  const int64_t rows = logits.rows(), count = logits.width(), k = o.chosen;
  check(k >= 1 && k <= count, "choose_experts: {} of {} experts", k, count);
  check(o.groups >= 1 && count % o.groups == 0 && o.chosen_groups >= 1 && o.chosen_groups <= o.groups &&
            o.chosen_groups * (count / o.groups) >= k,
        "choose_experts: {} experts cannot be chosen from {} of {} groups of {}", k, o.chosen_groups,
        o.groups, count);
  if (o.bias.defined()) {
    expect_shape("choose_experts", "bias", o.bias, {count});
    expect_dtype("choose_experts", "bias", o.bias, DType::f32);
  }
  const Tensor p = affinities(logits.detach(), o.score);
  std::vector<int32_t> experts;
  Tensor weights = Tensor::empty({rows, k}, DType::f32);
  std::vector<float> scores(count);
  std::vector<int32_t> order;
  for (int64_t n = 0; n < rows; ++n) {
    const float* row = p.data<float>() + n * count;
    for (int64_t e = 0; e < count; ++e) scores[e] = row[e] + (o.bias.defined() ? o.bias.data<float>()[e] : 0);
    if (o.groups > 1) keep_best_groups(o, scores, order);
    best(scores, k, order);
    float sum = kTiny;
    for (int64_t j = 0; j < k; ++j) sum += row[order[j]];
    for (int64_t j = 0; j < k; ++j) {
      experts.push_back(order[j]);
      weights.mutable_data<float>()[n * k + j] = o.scale * row[order[j]] / (o.renormalized ? sum : 1);
    }
  }
  Choice out{{std::move(experts), k}, std::move(weights)};
  if (wants_grad({&logits})) connect(out.weights, std::make_shared<ChoiceNode>(logits, p, out.experts, o));
  return out;
}

ExpertRows rows_by_expert(const Indices& experts, int64_t count) {
  std::vector<int32_t> offsets(count + 1), tokens(experts.count()), places(experts.count());
  for (const int32_t e : experts.values()) {
    check(e >= 0 && e < count, "rows_by_expert: expert {} of {}", e, count);
    ++offsets[e + 1];
  }
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  std::vector<int32_t> next(offsets.begin(), offsets.end() - 1);
  for (int64_t i = 0; i < experts.count(); ++i) {
    const int32_t place = next[experts[i]]++;
    tokens[place] = static_cast<int32_t>(i / experts.width());
    places[i] = place;
  }
  return {std::move(offsets), std::move(tokens), {std::move(places), experts.width()}};
}

namespace {

// The gradients of each expert's rows and weights, as in a linear layer.
class ExpertLinearNode : public Node {
 public:
  ExpertLinearNode(const Tensor& x, const Weight& weight, const Tensor& bias,
                   std::span<const int32_t> offsets)
      : x_(x.detach()), weight_(weight.detach()), offsets_(offsets.begin(), offsets.end()) {
    add_input(x);
    add_input(weight.dense());
    add_input(bias);
  }
  std::string_view name() const override { return "expert_linear"; }
  void backward(std::span<Tensor> grads) override {
    const Tensor& dy = grads[0];
    const int64_t experts = std::ssize(offsets_) - 1, in = x_.width(), out = weight_.dim(0) / experts;
    const int64_t element = size_of(x_.dtype());
    if (wants(0)) {
      Tensor dx = Tensor::empty(x_.shape(), x_.dtype());
      for (int64_t e = 0; e < experts; ++e)
        if (const int64_t rows = offsets_[e + 1] - offsets_[e]; rows > 0)
          multiply_by_weight_transposed({.m = rows,
                                         .n = in,
                                         .k = out,
                                         .out = x_.dtype(),
                                         .a = matrix(dy, offsets_[e]),
                                         .c = static_cast<std::byte*>(dx.raw()) + offsets_[e] * in * element,
                                         .c_stride = in},
                                        weight_.slice_rows(e * out, (e + 1) * out));
      give(0, std::move(dx));
    }
    weight_grad(1, weight_.shape(), [&](Tensor& dw, bool accumulate) {
      for (int64_t e = 0; e < experts; ++e) {
        const int64_t rows = offsets_[e + 1] - offsets_[e];
        float* to = dw.mutable_data<float>() + e * out * in;
        if (rows == 0 && !accumulate) std::fill(to, to + out * in, 0.0F);
        if (rows == 0) continue;
        matrix_product({.m = out,
                        .n = in,
                        .k = rows,
                        .out = DType::f32,
                        .a = matrix(dy, offsets_[e], true),
                        .b = matrix(x_, offsets_[e]),
                        .c = to,
                        .c_stride = in,
                        .accumulate = accumulate});
      }
    });
    if (wants(2)) give(2, bias_gradient(dy));
  }

 private:
  Tensor bias_gradient(const Tensor& dy) const {
    const int64_t experts = std::ssize(offsets_) - 1, out = dy.width();
    Tensor db = Tensor::zeros({experts * out}, DType::f32);
    with_float_type("expert_linear", dy.dtype(), [&]<typename T>(T) {
      for (int64_t e = 0; e < experts; ++e)
        for (int64_t r = offsets_[e]; r < offsets_[e + 1]; ++r)
          for (int64_t c = 0; c < out; ++c)
            db.mutable_data<float>()[e * out + c] += static_cast<float>(dy.data<T>()[r * out + c]);
    });
    return db;
  }

  Tensor x_;
  Weight weight_;
  std::vector<int32_t> offsets_;
};

// Adds to each row its expert's part of the bias.
void add_biases(Tensor& y, const Tensor& bias, std::span<const int32_t> offsets) {
  const int64_t out = y.width();
  expect_shape("expert_linear", "bias", bias, {(std::ssize(offsets) - 1) * out});
  expect_dtype("expert_linear", "bias", bias, DType::f32);
  with_float_type("expert_linear", y.dtype(), [&]<typename T>(T) {
    for (int64_t e = 0; e + 1 < std::ssize(offsets); ++e)
      for (int64_t r = offsets[e]; r < offsets[e + 1]; ++r)
        for (int64_t c = 0; c < out; ++c) {
          T& to = y.mutable_data<T>()[r * out + c];
          to = T(static_cast<float>(to) + bias.data<float>()[e * out + c]);
        }
  });
}

}  // namespace

Tensor expert_linear(const Tensor& x, const Weight& weight, const Tensor& bias,
                     std::span<const int32_t> offsets) {
  const int64_t experts = std::ssize(offsets) - 1;
  check(experts >= 1 && x.shape().rank() == 2 && weight.shape().rank() == 2 && x.width() == weight.dim(1) &&
            weight.dim(0) % experts == 0,
        "expert_linear: weight {} of {} experts does not fit x {}", weight.shape(), experts, x.shape());
  expect_weight("expert_linear", weight, x.dtype());
  check(offsets.front() == 0 && offsets.back() == x.rows() && std::is_sorted(offsets.begin(), offsets.end()),
        "expert_linear: the offsets do not divide {} rows", x.rows());
  const int64_t in = x.width(), out = weight.dim(0) / experts, element = size_of(x.dtype());
  Tensor y = Tensor::empty({x.rows(), out}, x.dtype());
  for (int64_t e = 0; e < experts; ++e)
    if (const int64_t rows = offsets[e + 1] - offsets[e]; rows > 0)
      multiply_by_weight({.m = rows,
                          .n = out,
                          .k = in,
                          .out = x.dtype(),
                          .a = matrix(x, offsets[e]),
                          .c = static_cast<std::byte*>(y.raw()) + offsets[e] * out * element,
                          .c_stride = out},
                         weight.slice_rows(e * out, (e + 1) * out));
  if (bias.defined()) add_biases(y, bias, offsets);
  if (wants_grad({&x, &weight.dense(), &bias}))
    connect(y, std::make_shared<ExpertLinearNode>(x, weight, bias, offsets));
  return y;
}

namespace {

// dy[places[n, j]] = weights[n, j] dout[n];  dweights[n, j] = dout[n] . y[places[n, j]].
class WeightedRowsNode : public Node {
 public:
  WeightedRowsNode(const Tensor& y, const Indices& places, const Tensor& weights)
      : y_(y.detach()), weights_(weights.detach()), places_(places) {
    add_input(y);
    add_input(weights);
  }
  std::string_view name() const override { return "weighted_rows"; }
  void backward(std::span<Tensor> grads) override {
    const int64_t width = y_.width(), k = places_.width();
    Tensor dy = Tensor::zeros(y_.shape(), y_.dtype());
    Tensor dweights = Tensor::empty(weights_.shape(), DType::f32);
    with_float_type("weighted_rows", y_.dtype(), [&]<typename T>(T) {
      const T *y = y_.data<T>(), *dout = grads[0].data<T>();
      T* to = dy.mutable_data<T>();
      parallel_for(places_.rows(), row_grain(k * width), [&](int64_t n, int64_t end) {
        for (; n < end; ++n)
          for (int64_t j = 0; j < k; ++j) {
            const int64_t place = places_[n * k + j];
            const float w = weights_.data<float>()[n * k + j];
            float dot = 0;
            for (int64_t c = 0; c < width; ++c) {
              const float d = static_cast<float>(dout[n * width + c]);
              dot += d * static_cast<float>(y[place * width + c]);
              to[place * width + c] = T(w * d);
            }
            dweights.mutable_data<float>()[n * k + j] = dot;
          }
      });
    });
    give(0, std::move(dy));
    give(1, std::move(dweights));
  }

 private:
  Tensor y_, weights_;
  Indices places_;
};

// Throws Error unless each row of x is in one place.
void expect_places(std::string_view op, const Indices& places, const Tensor& x) {
  check(x.shape().rank() == 2 && places.rank() == 2 && places.count() == x.rows(),
        "{}: {} places for {} rows", op, places.count(), x.rows());
  std::vector<bool> taken(x.rows());
  for (const int32_t place : places.values()) {
    check(place >= 0 && place < x.rows() && !taken[place], "{}: row {} of {} is no token's own", op, place,
          x.rows());
    taken[place] = true;
  }
}

}  // namespace

Tensor weighted_rows(const Tensor& y, const Indices& places, const Tensor& weights) {
  expect_shape("weighted_rows", "weights", weights, places.shape());
  expect_dtype("weighted_rows", "weights", weights, DType::f32);
  expect_places("weighted_rows", places, y);
  const int64_t width = y.width(), k = places.width();
  Tensor out = Tensor::empty({places.rows(), width}, y.dtype());
  with_float_type("weighted_rows", y.dtype(), [&]<typename T>(T) {
    const T* from = y.data<T>();
    T* to = out.mutable_data<T>();
    parallel_for(places.rows(), row_grain(k * width), [&](int64_t n, int64_t end) {
      std::vector<float> sum(width);
      for (; n < end; ++n) {
        std::fill(sum.begin(), sum.end(), 0.0F);
        for (int64_t j = 0; j < k; ++j) {
          const T* row = from + places[n * k + j] * width;
          const float w = weights.data<float>()[n * k + j];
          for (int64_t c = 0; c < width; ++c) sum[c] += w * static_cast<float>(row[c]);
        }
        for (int64_t c = 0; c < width; ++c) to[n * width + c] = T(sum[c]);
      }
    });
  });
  if (wants_grad({&y, &weights})) connect(out, std::make_shared<WeightedRowsNode>(y, places, weights));
  return out;
}

namespace {

class ScaledRowsNode : public Node {
 public:
  ScaledRowsNode(const Tensor& x, const Indices& places, const Tensor& weights)
      : x_(x.detach()), weights_(weights.detach()), places_(places) {
    add_input(x);
    add_input(weights);
  }
  std::string_view name() const override { return "scaled_rows"; }
  void backward(std::span<Tensor> grads) override {
    const int64_t width = x_.width();
    Tensor dx = Tensor::empty(x_.shape(), x_.dtype()), dweights = Tensor::empty(weights_.shape(), DType::f32);
    with_float_type("scaled_rows", x_.dtype(), [&]<typename T>(T) {
      const T *x = x_.data<T>(), *dy = grads[0].data<T>();
      T* to = dx.mutable_data<T>();
      parallel_for(x_.rows(), row_grain(width), [&](int64_t i, int64_t end) {
        for (; i < end; ++i) {
          const int64_t row = (places_.defined() ? places_[i] : i) * width;
          const float w = weights_.data<float>()[i];
          float dot = 0;
          for (int64_t c = 0; c < width; ++c) {
            const auto d = static_cast<float>(dy[row + c]);
            dot += d * static_cast<float>(x[row + c]);
            to[row + c] = T(w * d);
          }
          dweights.mutable_data<float>()[i] = dot;
        }
      });
    });
    give(0, std::move(dx));
    give(1, std::move(dweights));
  }

 private:
  Tensor x_, weights_;
  Indices places_;
};

}  // namespace

Tensor scaled_rows(const Tensor& x, const Indices& places, const Tensor& weights) {
  check(x.defined() && x.shape().rank() == 2, "scaled_rows: expected x [M, D], got {}", x);
  expect_shape("scaled_rows", "weights", weights, places.defined() ? places.shape() : Shape{x.rows(), 1});
  expect_dtype("scaled_rows", "weights", weights, DType::f32);
  if (places.defined()) expect_places("scaled_rows", places, x);
  const int64_t width = x.width();
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  with_float_type("scaled_rows", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    parallel_for(x.rows(), row_grain(width), [&](int64_t i, int64_t end) {
      for (; i < end; ++i) {
        const int64_t row = (places.defined() ? places[i] : i) * width;
        const float w = weights.data<float>()[i];
        for (int64_t c = 0; c < width; ++c) to[row + c] = T(w * static_cast<float>(from[row + c]));
      }
    });
  });
  if (wants_grad({&x, &weights})) connect(out, std::make_shared<ScaledRowsNode>(x, places, weights));
  return out;
}

}  // namespace qkv
