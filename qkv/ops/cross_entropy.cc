#include "qkv/ops/cross_entropy.h"

#include <algorithm>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/weight_product.h"

namespace qkv {
namespace {

constexpr int64_t kChunkLogits = int64_t{1} << 26;  // 256 MiB of f32

// dz = scale (softmax(z) - onehot);  dX = dz W;  dW = dz^T X;  db = column sums of dz.
class CrossEntropyNode : public Node {
 public:
  CrossEntropyNode(const Tensor& x, const Weight& weight, const Tensor& bias) : weight_(weight.detach()) {
    add_input(x);
    add_input(weight.dense());
    add_input(bias);
    if (wants(0)) dx_ = Tensor::empty(x.shape(), x.dtype());
  }
  std::string_view name() const override { return "unembed_cross_entropy"; }

  // Called by the forward pass with the gradient of the logits of rows [begin, begin + rows).
  void chunk(const Tensor& x, int64_t begin, int64_t rows, const Tensor& dz, int64_t stride) {
    const int64_t width = x.width(), vocab = weight_.dim(0), at = begin * width * size_of(x.dtype());
    const auto* x_rows = static_cast<const std::byte*>(x.raw()) + at;
    if (wants(0))
      multiply_by_weight_transposed({.m = rows,
                                     .n = width,
                                     .k = vocab,
                                     .out = x.dtype(),
                                     .a = dense(dz.raw(), x.dtype(), stride),
                                     .c = static_cast<std::byte*>(dx_.raw()) + at,
                                     .c_stride = width},
                                    weight_);
    weight_grad(1, weight_.shape(), [&](Tensor& dw, bool accumulate) {
      matrix_product({.m = vocab,
                      .n = width,
                      .k = rows,
                      .out = DType::f32,
                      .a = dense(dz.raw(), x.dtype(), stride, true),
                      .b = dense(x_rows, x.dtype(), width),
                      .c = dw.raw(),
                      .c_stride = width,
                      .accumulate = accumulate});
    });
    weight_grad(2, {vocab}, [&](Tensor& db, bool accumulate) {
      if (!accumulate) std::memset(db.raw(), 0, db.bytes());
      with_float_type("unembed_cross_entropy", dz.dtype(), [&]<typename T>(T) {
        parallel_for(vocab, std::max<int64_t>(16, row_grain(rows)), [&](int64_t first, int64_t end) {
          kernels().typed<T>().column_sums(rows, stride, dz.data<T>(), first, end, db.mutable_data<float>());
        });
      });
    });
  }

  void backward(std::span<Tensor> grads) override {
    check(grads[0].item() == 1, "unembed_cross_entropy: must be the root of the backward pass");
    if (dx_.defined()) give(0, std::move(dx_));
  }

 private:
  Weight weight_;
  Tensor dx_;
};

}  // namespace

void cap_in_place(int64_t n, float cap, float* z) {
  kernels().scale(n, 1 / cap, z);
  kernels().f32.activation(Activation::tanh, n, z, z);
  kernels().scale(n, cap, z);
}

// A multiple of 16.
int64_t cross_entropy_rows(int64_t vocab) {
  return std::clamp<int64_t>(kChunkLogits / vocab / 16 * 16, 16, 4096);
}

CrossEntropyResult unembed_cross_entropy(const Tensor& x, const Weight& weight, const Tensor& bias,
                                         const Indices& targets, float scale, const LossTerms& terms,
                                         float cap) {
  check(
      weight.shape().rank() == 2 && x.shape().rank() == 2 && x.width() == weight.dim(1) && weight.dim(0) > 0,
      "unembed_cross_entropy: weight {} does not fit x {}", weight.shape(), x.shape());
  check(terms.label_smoothing >= 0 && terms.label_smoothing < 1,
        "unembed_cross_entropy: label smoothing must be in [0, 1), got {}", terms.label_smoothing);
  expect_weight("unembed_cross_entropy", weight, x.dtype());
  if (bias.defined()) {
    expect_shape("unembed_cross_entropy", "bias", bias, {weight.dim(0)});
    expect_dtype("unembed_cross_entropy", "bias", bias, DType::f32);
  }
  expect_shape("unembed_cross_entropy", "targets", targets, {x.rows()});
  const int64_t n = x.rows(), width = x.width(), vocab = weight.dim(0);
  const auto target = targets.values();
  CrossEntropyResult result;
  for (int64_t i = 0; i < n; ++i) {
    check(target[i] == kIgnored || (target[i] >= 0 && target[i] < vocab),
          "target {} at row {} is out of range: the vocabulary has {} tokens", target[i], i, vocab);
    result.count += target[i] != kIgnored;
  }
  const std::shared_ptr<CrossEntropyNode> node = wants_grad({&x, &weight.dense(), &bias})
                                                     ? std::make_shared<CrossEntropyNode>(x, weight, bias)
                                                     : nullptr;
  const int64_t rows = std::min(n, cross_entropy_rows(vocab));
  const int64_t stride = (vocab + 63) / 64 * 64;  // aligned rows: an odd stride costs the products a third
  Tensor logits = Tensor::empty({rows, stride}, DType::f32);
  // The slope of a cap is read from the capped logits: they must stay.
  Tensor dlogits =
      node && (x.dtype() == DType::bf16 || cap > 0) ? Tensor::empty({rows, stride}, x.dtype()) : logits;
  result.token_losses = Tensor::empty({n}, DType::f32);
  with_float_type("unembed_cross_entropy", x.dtype(), [&]<typename T>(T) {
    float* z = logits.mutable_data<float>();
    T* dz = nullptr;
    if (node) dz = reinterpret_cast<T*>(dlogits.raw());
    float* losses = result.token_losses.mutable_data<float>();
    for (int64_t begin = 0; begin < n; begin += rows) {
      const int64_t count = std::min(rows, n - begin);
      multiply_by_weight({.m = count,
                          .n = vocab,
                          .k = width,
                          .out = DType::f32,
                          .a = matrix(x, begin),
                          .bias = bias.defined() ? bias.data<float>() : nullptr,
                          .c = z,
                          .c_stride = stride},
                         weight);
      parallel_for(count, row_grain(vocab * 8), [&](int64_t r, int64_t end) {
        for (int64_t i = r; i < end && cap > 0; ++i) cap_in_place(vocab, cap, z + i * stride);
        kernels().typed<T>().cross_entropy({end - r, vocab, z + r * stride, stride, target.data() + begin + r,
                                            scale, losses + begin + r, dz ? dz + r * stride : nullptr,
                                            terms.label_smoothing, terms.z_loss});
        if (cap == 0 || dz == nullptr) return;
        for (; r < end; ++r)
          for (int64_t i = r * stride; i < r * stride + vocab; ++i)
            dz[i] = T(static_cast<float>(dz[i]) * (1 - z[i] * z[i] / (cap * cap)));
      });
      if (node) node->chunk(x, begin, count, dlogits, stride);
    }
    for (int64_t i = 0; i < n; ++i) result.total += double{losses[i]};
  });
  const auto loss = static_cast<float>(result.total * scale);
  result.loss = Tensor::of({1}, std::span(&loss, 1));
  if (node) connect(result.loss, node);
  return result;
}

}  // namespace qkv
