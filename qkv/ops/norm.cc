#include "qkv/ops/norm.h"

#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

// Outputs: sum (slot 0), normalized (slot 1). The gradient of the sum goes to x and, dropped, to the branch.
class ResidualNormNode : public Node {
 public:
  ResidualNormNode(const Tensor& x, const Tensor& branch, const Dropout& dropout, const Tensor& gamma,
                   const Tensor& beta, const Tensor& sum, const Tensor& mean, const Tensor& rstd)
      : dropout_(dropout),
        gamma_(gamma.detach()),
        centred_(beta.defined()),
        sum_(sum.detach()),
        mean_(mean),
        rstd_(rstd) {
    add_input(x);
    add_input(branch);
    add_input(gamma);
    add_input(beta);
  }
  std::string_view name() const override { return "residual_norm"; }

  void backward(std::span<Tensor> grads) override {
    const Tensor dsum_in = grads[0];
    const Tensor dy = grads.size() > 1 ? grads[1] : Tensor();
    const Tensor dsum = dy.defined() ? norm_grad(dsum_in, dy) : dsum_in;
    if (wants(1)) {
      const NoGrad guard;
      give(1, qkv::dropout(dsum, dropout_));
    }
    give(0, dsum);
  }

 private:
  Tensor norm_grad(const Tensor& dsum_in, const Tensor& dy) {
    const int64_t rows = sum_.rows(), width = sum_.width();
    const int64_t pieces = num_pieces(rows, row_grain(width));
    Tensor dsum = Tensor::empty(sum_.shape(), sum_.dtype());
    Tensor partial =
        Tensor::zeros({std::max<int64_t>(1, pieces), 2, width}, DType::f32);  // dgamma, dbeta a piece
    with_float_type("residual_norm", sum_.dtype(), [&]<typename T>(T) {
      const T *dy_data = dy.data<T>(), *sum = sum_.data<T>();
      const T* in = dsum_in.defined() ? dsum_in.data<T>() : nullptr;
      T* to = dsum.mutable_data<T>();
      float* parts = partial.mutable_data<float>();
      parallel_pieces(rows, row_grain(width), [&](int64_t piece, int64_t r, int64_t end) {
        const int64_t at = r * width;
        kernels().typed<T>().residual_norm_grad({end - r, width, dy_data + at, in ? in + at : nullptr,
                                                 sum + at, gamma_.data<float>(), mean_.data<float>() + r,
                                                 rstd_.data<float>() + r, to + at, parts + piece * 2 * width,
                                                 centred_ ? parts + (piece * 2 + 1) * width : nullptr});
      });
    });
    for (int which = 0; which < (centred_ ? 2 : 1); ++which)  // gamma, then beta
      weight_grad(2 + which, {width}, [&](Tensor& target, bool accumulate) {
        float* to = target.mutable_data<float>();
        if (!accumulate) std::memset(to, 0, target.bytes());
        for (int64_t p = 0; p < pieces; ++p)
          kernels().axpy(width, 1, partial.data<float>() + (p * 2 + which) * width, to);
      });
    return dsum;
  }

  Dropout dropout_;
  Tensor gamma_;
  bool centred_;
  Tensor sum_, mean_, rstd_;
};

}  // namespace

ResidualNormResult residual_norm(const Tensor& x, const Tensor& branch, const Dropout& dropout,
                                 const Tensor& gamma, const Tensor& beta, float epsilon) {
  const int64_t rows = x.rows(), width = x.width();
  expect_shape("residual_norm", "gamma", gamma, {width});
  expect_dtype("residual_norm", "gamma", gamma, DType::f32);
  if (beta.defined()) {
    expect_shape("residual_norm", "beta", beta, {width});
    expect_dtype("residual_norm", "beta", beta, DType::f32);
  }
  if (branch.defined()) {
    expect_shape("residual_norm", "branch", branch, x.shape());
    expect_dtype("residual_norm", "branch", branch, x.dtype());
  }
  Tensor sum = branch.defined() ? Tensor::empty(x.shape(), x.dtype()) : x.detach();
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  Tensor mean = Tensor::empty({rows}, DType::f32), rstd = Tensor::empty({rows}, DType::f32);
  with_float_type("residual_norm", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    const T* add = branch.defined() ? branch.data<T>() : nullptr;
    T* sum_out = branch.defined() ? sum.mutable_data<T>() : nullptr;
    T* out = y.mutable_data<T>();
    parallel_for(rows, row_grain(width), [&](int64_t r, int64_t end) {
      const int64_t at = r * width;
      Dropout part = dropout;
      part.first_row += r;
      kernels().typed<T>().residual_norm({end - r, width, from + at, add ? add + at : nullptr, part,
                                          gamma.data<float>(), beta.defined() ? beta.data<float>() : nullptr,
                                          epsilon, sum_out ? sum_out + at : nullptr, out + at,
                                          mean.mutable_data<float>() + r, rstd.mutable_data<float>() + r});
    });
  });
  if (wants_grad({&x, &branch, &gamma, &beta})) {
    const auto node = std::make_shared<ResidualNormNode>(x, branch, dropout, gamma, beta, sum, mean, rstd);
    connect(sum, node, 0);
    connect(y, node, 1);
  }
  return {sum, y};
}

namespace {

class RepeatedNode : public Node {
 public:
  explicit RepeatedNode(const Tensor& x) { add_input(x); }
  std::string_view name() const override { return "repeated"; }
  void backward(std::span<Tensor> grads) override {
    float sum = 0;
    for (const float g : grads[0].values<float>()) sum += g;
    weight_grad(0, {1}, [&](Tensor& target, bool accumulate) {
      float& to = *target.mutable_data<float>();
      to = accumulate ? to + sum : sum;
    });
  }
};

}  // namespace

Tensor repeated(const Tensor& x, int64_t count) {
  expect_shape("repeated", "x", x, {1});
  expect_dtype("repeated", "x", x, DType::f32);
  Tensor out = Tensor::of({count}, std::vector<float>(static_cast<size_t>(count), x.item()));
  if (wants_grad({&x})) connect(out, std::make_shared<RepeatedNode>(x));
  return out;
}

}  // namespace qkv
