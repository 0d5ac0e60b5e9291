#include "qkv/ops/low_rank.h"

#include "qkv/autograd/graph.h"
#include "qkv/kernels/gemm.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/weight_product.h"

namespace qkv {
namespace {

const void* column(const Tensor& x, int64_t begin) {
  return static_cast<const std::byte*>(x.raw()) + begin * size_of(x.dtype());
}

// Y += scale L B^T in columns [begin, begin + out), L = X A^T:
//   dL = scale dY' B,  dB = dY'^T (scale L),  dA = dL^T X,  dX = dL A,  dY' being those columns of dY.
class LowRankNode : public Node {
 public:
  // `low`: scale L.
  LowRankNode(const Tensor& y, const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& low,
              float scale, int64_t begin)
      : x_(x.detach()), a_(a.detach()), b_(b.detach()), low_(low), scale_(scale), begin_(begin) {
    add_input(y);
    add_input(x);
    add_input(a);
    add_input(b);
  }
  std::string_view name() const override { return "add_low_rank"; }

  void backward(std::span<Tensor> grads) override {
    const DType type = x_.dtype();
    const Tensor dy = convert(grads[0], type);  // f32 where y was read as a table is
    const int64_t rows = x_.rows(), in = x_.width(), rank = a_.dim(0), out = b_.dim(0);
    weight_grad(3, b_.shape(), [&](Tensor& db, bool accumulate) {
      matrix_product({.m = out,
                      .n = rank,
                      .k = rows,
                      .out = DType::f32,
                      .a = dense(column(dy, begin_), type, dy.width(), true),
                      .b = dense(low_.raw(), type, rank),
                      .c = db.raw(),
                      .c_stride = rank,
                      .accumulate = accumulate});
    });
    if (wants(1) || wants(2)) {
      Tensor dlow = Tensor::empty({rows, rank}, type);
      matrix_product({.m = rows,
                      .n = rank,
                      .k = out,
                      .out = type,
                      .a = dense(column(dy, begin_), type, dy.width()),
                      .b = dense(b_.raw(), type, rank),
                      .c = dlow.raw(),
                      .c_stride = rank});
      dlow = scaled(dlow, scale_);
      weight_grad(2, a_.shape(), [&](Tensor& da, bool accumulate) {
        matrix_product({.m = rank,
                        .n = in,
                        .k = rows,
                        .out = DType::f32,
                        .a = dense(dlow.raw(), type, rank, true),
                        .b = dense(x_.raw(), type, in),
                        .c = da.raw(),
                        .c_stride = in,
                        .accumulate = accumulate});
      });
      product_grad(1, x_.shape(), type, [&](Tensor& dx, bool accumulate) {
        matrix_product({.m = rows,
                        .n = in,
                        .k = rank,
                        .out = type,
                        .a = dense(dlow.raw(), type, rank),
                        .b = dense(a_.raw(), type, in),
                        .c = dx.raw(),
                        .c_stride = in,
                        .accumulate = accumulate});
      });
    }
    give(0, dy);
  }

 private:
  Tensor x_, a_, b_, low_;
  float scale_;
  int64_t begin_;
};

}  // namespace

Tensor add_low_rank(Tensor y, const Tensor& x, const Tensor& a, const Tensor& b, float scale, int64_t begin) {
  check(x.shape().rank() == 2 && a.shape().rank() == 2 && x.width() == a.dim(1),
        "add_low_rank: a {} does not fit x {}: expected [rank, {}]", a.shape(), x.shape(), x.width());
  check(b.shape().rank() == 2 && b.dim(1) == a.dim(0),
        "add_low_rank: b {} does not fit a {}: expected [out, {}]", b.shape(), a.shape(), a.dim(0));
  check(y.shape().rank() == 2 && y.rows() == x.rows(), "add_low_rank: y {} does not fit x {}", y.shape(),
        x.shape());
  const int64_t rows = x.rows(), rank = a.dim(0), out = b.dim(0);
  check(begin >= 0 && begin + out <= y.width(), "add_low_rank: columns [{}, {}) of {}", begin, begin + out,
        y.width());
  for (const auto& [name, tensor] : {std::pair{"a", &a}, {"b", &b}, {"y", &std::as_const(y)}})
    expect_dtype("add_low_rank", name, *tensor, x.dtype());
  const Tensor low = scaled(linear(x.detach(), a.detach(), {}), scale);
  const auto node =
      wants_grad({&y, &x, &a, &b}) ? std::make_shared<LowRankNode>(y, x, a, b, low, scale, begin) : nullptr;
  Tensor sum = y.detach();
  multiply_by_weight({.m = rows,
                      .n = out,
                      .k = rank,
                      .out = x.dtype(),
                      .a = dense(low.raw(), x.dtype(), rank),
                      .c = static_cast<std::byte*>(sum.raw()) + begin * size_of(x.dtype()),
                      .c_stride = y.width(),
                      .accumulate = true},
                     b.detach());
  if (node) connect(sum, node);
  return sum;
}

}  // namespace qkv
