#include "qkv/ops/random_features.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/parts.h"

namespace qkv {
namespace {

int64_t width_of(RandomMap map, int64_t m) {
  return map == RandomMap::fourier ? 2 * m : m;
}

// The features of one head from its products u [m] with the random vectors; returns the largest of them, or
// 0.
float map_head(RandomMap map, const float* u, int64_t m, float* y) {
  const float scale = 1 / std::sqrt(static_cast<float>(m));
  if (map == RandomMap::fourier) {
    for (int64_t j = 0; j < m; ++j) {
      y[j] = scale * std::cos(u[j]);
      y[m + j] = scale * std::sin(u[j]);
    }
    return 0;
  }
  const float most = *std::max_element(u, u + m);
  for (int64_t j = 0; j < m; ++j) y[j] = u[j] - most;
  kernels().exp(m, y, y);
  kernels().scale(m, scale, y);
  return most;
}

float half_square(const float* x, int64_t d) {
  float sum = 0;
  for (int64_t i = 0; i < d; ++i) sum += x[i] * x[i];
  return sum / 2;
}

class RandomFeaturesNode : public Node {
 public:
  RandomFeaturesNode(RandomMap map, const Tensor& u, const Tensor& x, const Tensor& features, int64_t heads)
      : map_(map), heads_(heads) {
    add_input(u);
    add_input(x);
    u_ = u.detach();
    x_ = x.detach();
    features_ = features.detach();
  }
  std::string_view name() const override { return "random_features"; }
  void backward(std::span<Tensor> grads) override {
    const int64_t m = u_.width(), d = x_.width() / heads_, rows = u_.dim(0), wide = width_of(map_, m);
    Tensor du = Tensor::zeros(u_.shape(), DType::f32), dx = Tensor::zeros(x_.shape(), DType::f32);
    const float *f = features_.data<float>(), *x = x_.data<float>();
    const float *df = grads[0].defined() ? grads[0].data<float>() : nullptr,
                *dl = grads.size() > 1 && grads[1].defined() ? grads[1].data<float>() : nullptr;
    float *to_u = du.mutable_data<float>(), *to_x = dx.mutable_data<float>();
    const float sign = map_ == RandomMap::fourier ? 1 : -1;
    parallel_for(rows, row_grain(kFunctionCost * wide), [&](int64_t r, int64_t end) {
      for (; r < end; ++r) {
        if (df != nullptr)
          of_features(f + r * wide, df + r * wide, u_.data<float>() + r * m, to_u + r * m, m);
        if (dl == nullptr) continue;
        for (int64_t i = r * d; i < (r + 1) * d; ++i) to_x[i] = sign * dl[r] * x[i];
        if (map_ == RandomMap::positive) to_u[r * m + largest(u_.data<float>() + r * m, m)] += dl[r];
      }
    });
    give(0, std::move(du));
    give(1, std::move(dx));
  }

 private:
  static int64_t largest(const float* u, int64_t m) { return std::max_element(u, u + m) - u; }
  void of_features(const float* f, const float* df, const float* u, float* to, int64_t m) const {
    if (map_ == RandomMap::fourier) {
      for (int64_t j = 0; j < m; ++j) to[j] = f[j] * df[m + j] - f[m + j] * df[j];
      return;
    }
    float sum = 0;
    for (int64_t j = 0; j < m; ++j) {
      to[j] = f[j] * df[j];
      sum += to[j];
    }
    to[largest(u, m)] -= sum;
  }

  RandomMap map_;
  int64_t heads_;
  Tensor u_, x_, features_;
};

class RaisedFeaturesNode : public Node {
 public:
  RaisedFeaturesNode(const Tensor& u, const Tensor& x, const Tensor& features, float raised)
      : raised_(raised) {
    add_input(u);
    add_input(x);
    x_ = x.detach();
    features_ = features.detach();
    shape_ = u.shape();
  }
  std::string_view name() const override { return "raised_features"; }
  void backward(std::span<Tensor> grads) override {
    const int64_t m = shape_[1], d = x_.count() / shape_[0];
    Tensor du = Tensor::empty(shape_, DType::f32), dx = Tensor::empty(x_.shape(), DType::f32);
    const float *f = features_.data<float>(), *df = grads[0].data<float>(), *x = x_.data<float>();
    float *to_u = du.mutable_data<float>(), *to_x = dx.mutable_data<float>();
    parallel_for(shape_[0], row_grain(m + d), [&](int64_t r, int64_t end) {
      for (; r < end; ++r) {
        float sum = 0;
        for (int64_t i = r * m; i < (r + 1) * m; ++i) {
          to_u[i] = (f[i] - raised_) * df[i];
          sum += to_u[i];
        }
        for (int64_t i = r * d; i < (r + 1) * d; ++i) to_x[i] = -sum * x[i];
      }
    });
    give(0, std::move(du));
    give(1, std::move(dx));
  }

 private:
  float raised_;  // is added to each feature
  Shape shape_;   // that of u, [N heads, m]
  Tensor x_, features_;
};

class RunningScaleNode : public Node {
 public:
  RunningScaleNode(const Tensor& sizes, const Tensor& keeps, const Tensor& factors) {
    add_input(sizes);
    add_input(keeps);
    factors_ = factors.detach();
  }
  std::string_view name() const override { return "running_scale"; }
  void backward(std::span<Tensor> grads) override {
    if (wants(0) && grads.size() > 1 && grads[1].defined()) {
      Tensor d = Tensor::empty(factors_.shape(), DType::f32);
      for (int64_t i = 0; i < d.count(); ++i)
        d.mutable_data<float>()[i] = factors_.data<float>()[i] * grads[1].data<float>()[i];
      give(0, std::move(d));
    }
    if (wants(1) && grads[0].defined()) give(1, grads[0]);
  }

 private:
  Tensor factors_;
};

// w_j . x of each head: [N heads, m].
Tensor products_with(const Tensor& x, const Tensor& w, int64_t heads) {
  check(x.defined() && x.shape().rank() == 2 && x.dtype() == DType::f32 && heads > 0 && x.width() > 0 &&
            x.width() % heads == 0,
        "random_features: {} heads do not fit x {}", heads, x);
  const int64_t d = x.width() / heads;
  check(w.defined() && w.dtype() == DType::f32 && w.shape().rank() == 2 && w.dim(0) > 0 && w.width() == d,
        "random_features: expected w f32 [m, {}], got {}", d, w);
  return linear(reshaped(x, {x.dim(0) * heads, d}), w, {}, DType::f32);
}

}  // namespace

RandomFeatures random_features(RandomMap map, const Tensor& x, const Tensor& w, int64_t heads) {
  const Tensor u = products_with(x, w, heads);
  const int64_t d = x.width() / heads, n = x.dim(0), m = w.dim(0), wide = width_of(map, m);
  RandomFeatures out{Tensor::empty({n, heads * wide}, DType::f32), Tensor::empty({n, heads}, DType::f32)};
  float *y = out.features.mutable_data<float>(), *scales = out.log_scales.mutable_data<float>();
  parallel_for(n * heads, row_grain(kFunctionCost * wide), [&](int64_t r, int64_t end) {
    for (; r < end; ++r) {
      const float most = map_head(map, u.data<float>() + r * m, m, y + r * wide),
                  half = half_square(x.data<float>() + r * d, d);
      scales[r] = map == RandomMap::fourier ? half : most - half;
    }
  });
  if (wants_grad({&u, &x})) {
    const auto node = std::make_shared<RandomFeaturesNode>(map, u, x, out.features, heads);
    connect(out.features, node, 0);
    connect(out.log_scales, node, 1);
  }
  return out;
}

Tensor raised_features(const Tensor& x, const Tensor& w, int64_t heads, float epsilon,
                       std::span<const int32_t> offsets) {
  const Tensor u = products_with(x, w, heads);
  const int64_t n = x.dim(0), d = x.width() / heads, m = w.dim(0);
  check(offsets.empty() || (offsets.front() == 0 && offsets.back() == n && std::ranges::is_sorted(offsets)),
        "raised_features: the offsets do not fit x {}", x);
  // M of each row and head.
  std::vector<float> most(n * heads);
  for (int64_t r = 0; r < n * heads; ++r)
    most[r] = *std::max_element(u.data<float>() + r * m, u.data<float>() + (r + 1) * m);
  for (size_t s = 0; s + 1 < offsets.size(); ++s)
    for (int64_t h = 0; h < heads; ++h) {
      float all = -std::numeric_limits<float>::infinity();
      for (int64_t t = offsets[s]; t < offsets[s + 1]; ++t) all = std::max(all, most[t * heads + h]);
      for (int64_t t = offsets[s]; t < offsets[s + 1]; ++t) most[t * heads + h] = all;
    }
  const float scale = 1 / std::sqrt(static_cast<float>(m)), raised = scale * epsilon;
  Tensor out = Tensor::empty({n, heads * m}, DType::f32);
  parallel_for(n * heads, row_grain(kFunctionCost * m), [&](int64_t r, int64_t end) {
    for (; r < end; ++r) {
      float* y = out.mutable_data<float>() + r * m;
      const float less = most[r] + half_square(x.data<float>() + r * d, d);
      for (int64_t j = 0; j < m; ++j) y[j] = u.data<float>()[r * m + j] - less;
      kernels().exp(m, y, y);
      for (int64_t j = 0; j < m; ++j) y[j] = scale * y[j] + raised;
    }
  });
  if (wants_grad({&u, &x})) connect(out, std::make_shared<RaisedFeaturesNode>(u, x, out, raised), 0);
  return out;
}

RunningScale running_scale(const Tensor& sizes, const Tensor& keeps, const Tensor& first,
                           std::span<const int32_t> offsets, std::span<const int32_t> marks) {
  constexpr float kNothing = -1e30F;
  check(sizes.defined() && sizes.shape().rank() == 2 && sizes.dtype() == DType::f32,
        "running_scale: expected sizes f32 [N, H], got {}", sizes);
  const int64_t heads = sizes.width(), sequences = std::ssize(offsets) - 1;
  check(sequences >= 0 && offsets.front() == 0 && offsets.back() == sizes.dim(0) &&
            std::ranges::is_sorted(offsets),
        "running_scale: the offsets do not fit sizes {}", sizes);
  for (const auto& [what, x, shape] :
       {std::tuple("keeps", &keeps, sizes.shape()), {"first", &first, Shape({sequences, heads})}})
    if (x->defined()) {
      expect_shape("running_scale", what, *x, shape);
      expect_dtype("running_scale", what, *x, DType::f32);
    }
  check(marks.empty() || std::ssize(marks) == sequences, "running_scale: {} marks in {} sequences",
        marks.size(), sequences);
  RunningScale out{Tensor::empty(sizes.shape(), DType::f32),
                   Tensor::empty(sizes.shape(), DType::f32),
                   Tensor::empty({sequences, heads}, DType::f32),
                   {}};
  if (!marks.empty()) out.marked = Tensor::zeros(out.state.shape(), DType::f32);
  const auto stored = [](float m) {
    return m == kNothing ? 0 : m == 0 ? std::numeric_limits<float>::min() : m;
  };
  for (int64_t s = 0; s < sequences; ++s)
    for (int64_t h = 0; h < heads; ++h) {
      float m = first.defined() ? first.data<float>()[s * heads + h] : 0;
      if (m == 0) m = kNothing;
      for (int64_t r = offsets[s];; ++r) {
        if (!marks.empty() && marks[s] == r - offsets[s])
          out.marked.mutable_data<float>()[s * heads + h] = stored(m);
        if (r == offsets[s + 1]) break;
        const int64_t i = r * heads + h;
        const float before = m + (keeps.defined() ? keeps.data<float>()[i] : 0),
                    size = sizes.data<float>()[i];
        const bool nothing = m == kNothing;
        m = nothing ? size : std::max(before, size);
        out.decays.mutable_data<float>()[i] = nothing ? kNothing : before - m;
        out.factors.mutable_data<float>()[i] = std::exp(size - m);
      }
      out.state.mutable_data<float>()[s * heads + h] = stored(m);
    }
  if (wants_grad({&sizes, &keeps})) {
    const auto node = std::make_shared<RunningScaleNode>(sizes, keeps, out.factors);
    connect(out.decays, node, 0);
    connect(out.factors, node, 1);
  }
  return out;
}

}  // namespace qkv
