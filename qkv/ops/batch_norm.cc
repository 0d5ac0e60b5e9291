#include "qkv/ops/batch_norm.h"

#include <cmath>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

// For each row r and column c of [begin, end), in the order of rows.
template <typename F>
void for_columns(int64_t rows, int64_t width, const F& f) {
  parallel_for(width, std::max<int64_t>(16, row_grain(rows)), [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = begin; c < end; ++c) f(r, c);
  });
}

std::vector<float> inverse_deviations(const Tensor& variance, float epsilon) {
  std::vector<float> out;
  for (const float v : variance.values<float>()) out.push_back(1 / std::sqrt(v + epsilon));
  return out;
}

// With n = (x - mean) s, s = 1 / sqrt(variance + epsilon):  dgamma = sum dy n;  dbeta = sum dy;
// dx = gamma s (dy - (dbeta + n dgamma) / N) through the statistics of x, gamma s dy past given ones.
class BatchNormNode : public Node {
 public:
  BatchNormNode(const Tensor& x, const ColumnStatistics& statistics, bool of_x, const Tensor& gamma,
                const Tensor& beta, float epsilon)
      : x_(x.detach()), mean_(statistics.mean), of_x_(of_x), gamma_(gamma.detach()) {
    add_input(x);
    add_input(gamma);
    add_input(beta);
    scale_ = inverse_deviations(statistics.variance, epsilon);
  }
  std::string_view name() const override { return "batch_norm"; }
  void backward(std::span<Tensor> grads) override {
    const int64_t rows = x_.rows(), width = x_.width();
    Tensor dgamma = Tensor::zeros({width}, DType::f32), dbeta = Tensor::zeros({width}, DType::f32);
    Tensor dx = Tensor::empty(x_.shape(), x_.dtype());
    const float *mean = mean_.data<float>(), *gamma = gamma_.data<float>();
    float *by_gamma = dgamma.mutable_data<float>(), *by_beta = dbeta.mutable_data<float>();
    with_float_type("batch_norm", x_.dtype(), [&]<typename T>(T) {
      const T *x = x_.data<T>(), *dy = grads[0].data<T>();
      T* to = dx.mutable_data<T>();
      const auto normal = [&](int64_t at, int64_t c) {
        return (static_cast<float>(x[at]) - mean[c]) * scale_[c];
      };
      for_columns(rows, width, [&](int64_t r, int64_t c) {
        const float d = static_cast<float>(dy[r * width + c]);
        by_beta[c] += d;
        by_gamma[c] += d * normal(r * width + c, c);
      });
      const float part = of_x_ ? 1 / static_cast<float>(rows) : 0;
      for_columns(rows, width, [&](int64_t r, int64_t c) {
        const int64_t at = r * width + c;
        const float through = part * (by_beta[c] + normal(at, c) * by_gamma[c]);
        to[at] = T(gamma[c] * scale_[c] * (static_cast<float>(dy[at]) - through));
      });
    });
    for (const auto& [input, sums] : {std::pair{1, &dgamma}, std::pair{2, &dbeta}})
      weight_grad(input, {width}, [&, sums = sums](Tensor& target, bool accumulate) {
        if (!accumulate) std::memset(target.raw(), 0, target.bytes());
        kernels().axpy(width, 1, sums->data<float>(), target.mutable_data<float>());
      });
    give(0, std::move(dx));
  }

 private:
  Tensor x_, mean_;
  bool of_x_;
  Tensor gamma_;
  std::vector<float> scale_;
};

}  // namespace

ColumnStatistics column_statistics(const Tensor& x) {
  check(x.defined() && x.shape().rank() == 2 && x.rows() > 0,
        "column_statistics: expected rows [N, D], got {}", x);
  const int64_t rows = x.rows(), width = x.width();
  ColumnStatistics out{Tensor::zeros({width}, DType::f32), Tensor::zeros({width}, DType::f32)};
  float *mean = out.mean.mutable_data<float>(), *variance = out.variance.mutable_data<float>();
  const float part = 1 / static_cast<float>(rows);
  with_float_type("column_statistics", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    for_columns(rows, width,
                [&](int64_t r, int64_t c) { mean[c] += part * static_cast<float>(from[r * width + c]); });
    for_columns(rows, width, [&](int64_t r, int64_t c) {
      const float d = static_cast<float>(from[r * width + c]) - mean[c];
      variance[c] += part * d * d;
    });
  });
  return out;
}

Tensor batch_norm(const Tensor& x, const ColumnStatistics& statistics, bool of_x, const Tensor& gamma,
                  const Tensor& beta, float epsilon) {
  check(x.defined() && x.shape().rank() == 2, "batch_norm: expected x [N, D]");
  const int64_t rows = x.rows(), width = x.width();
  for (const auto& [name, v] :
       {std::pair{"mean", &statistics.mean}, std::pair{"variance", &statistics.variance},
        std::pair{"gamma", &gamma}, std::pair{"beta", &beta}}) {
    expect_shape("batch_norm", name, *v, {width});
    expect_dtype("batch_norm", name, *v, DType::f32);
  }
  const std::vector<float> scale = inverse_deviations(statistics.variance, epsilon);
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  with_float_type("batch_norm", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    const float *mean = statistics.mean.data<float>(), *g = gamma.data<float>(), *b = beta.data<float>();
    parallel_for(rows, row_grain(width), [&](int64_t r, int64_t end) {
      for (; r < end; ++r)
        for (int64_t c = 0; c < width; ++c)
          to[r * width + c] = T((static_cast<float>(from[r * width + c]) - mean[c]) * scale[c] * g[c] + b[c]);
    });
  });
  if (wants_grad({&x, &gamma, &beta}))
    connect(out, std::make_shared<BatchNormNode>(x, statistics, of_x, gamma, beta, epsilon));
  return out;
}

}  // namespace qkv
