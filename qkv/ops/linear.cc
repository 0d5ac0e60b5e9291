#include "qkv/ops/linear.h"

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/weight_product.h"

namespace qkv {
namespace {

// Y = X W^T + b:  dX = dY W,  dW = dY^T X,  db = column sums of dY.
class LinearNode : public Node {
 public:
  LinearNode(const Tensor& x, const Weight& weight, const Tensor& bias, IdleBias idle)
      : x_(x.detach()), weight_(weight.detach()), idle_(idle) {
    add_input(x);
    add_input(weight.dense());
    add_input(bias);
  }
  std::string_view name() const override { return "linear"; }

  void backward(std::span<Tensor> grads) override {
    const Tensor dy = convert(grads[0], x_.dtype());  // f32 where the products' sums were wanted as they are
    const int64_t rows = x_.rows(), in = x_.width(), out = weight_.dim(0);
    product_grad(0, x_.shape(), x_.dtype(), [&](Tensor& dx, bool accumulate) {
      multiply_by_weight_transposed({.m = rows,
                                     .n = in,
                                     .k = out,
                                     .out = x_.dtype(),
                                     .a = matrix(dy),
                                     .c = dx.raw(),
                                     .c_stride = in,
                                     .accumulate = accumulate},
                                    weight_);
    });
    weight_grad(1, weight_.shape(), [&](Tensor& dw, bool accumulate) {
      matrix_product({.m = out,
                      .n = in,
                      .k = rows,
                      .out = DType::f32,
                      .a = matrix(dy, 0, true),
                      .b = matrix(x_),
                      .c = dw.raw(),
                      .c_stride = in,
                      .accumulate = accumulate});
    });
    weight_grad(2, {out}, [&](Tensor& db, bool accumulate) {
      if (!accumulate) std::memset(db.raw(), 0, db.bytes());
      with_float_type("linear", dy.dtype(), [&]<typename T>(T) {
        const T* from = dy.data<T>();
        float* to = db.mutable_data<float>();
        const auto sums = [&](int64_t first, int64_t last) {
          parallel_for(last - first, std::max<int64_t>(16, row_grain(rows)), [&](int64_t begin, int64_t end) {
            kernels().typed<T>().column_sums(rows, out, from, first + begin, first + end, to);
          });
        };
        if (idle_.begin > 0) sums(0, idle_.begin);
        if (idle_.end < out) sums(idle_.end, out);
      });
    });
  }

 private:
  Tensor x_;
  Weight weight_;
  IdleBias idle_;
};

}  // namespace

Tensor linear(const Tensor& x, const Weight& weight, const Tensor& bias, DType out_type, IdleBias idle) {
  check(weight.defined() && weight.shape().rank() == 2 && x.shape().rank() == 2 && x.width() == weight.dim(1),
        "linear: weight {} does not fit x {}: expected [out, {}]", weight.shape(), x.shape(), x.width());
  expect_weight("linear", weight, x.dtype());
  check(out_type == x.dtype() || out_type == DType::f32, "linear: {} from {} is not supported",
        name_of(out_type), name_of(x.dtype()));
  const int64_t rows = x.rows(), in = x.width(), out = weight.dim(0);
  check(idle.begin >= 0 && idle.begin <= idle.end && idle.end <= out, "linear: idle outputs [{}, {}) of {}",
        idle.begin, idle.end, out);
  if (bias.defined()) {
    expect_shape("linear", "bias", bias, {out});
    expect_dtype("linear", "bias", bias, DType::f32);
  }
  Tensor y = Tensor::empty({rows, out}, out_type);
  multiply_by_weight({.m = rows,
                      .n = out,
                      .k = in,
                      .out = out_type,
                      .a = matrix(x),
                      .bias = bias.defined() ? bias.data<float>() : nullptr,
                      .c = y.raw(),
                      .c_stride = out},
                     weight);
  if (wants_grad({&x, &weight.dense(), &bias}))
    connect(y, std::make_shared<LinearNode>(x, weight, bias, idle));
  return y;
}

}  // namespace qkv
