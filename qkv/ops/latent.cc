#include "qkv/ops/latent.h"

#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/kernels/gemm.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/weight_product.h"

namespace qkv {
namespace {

class JoinHeadsNode : public Node {
 public:
  JoinHeadsNode(const Tensor& shared, const Tensor& its_own, int64_t heads, int64_t width)
      : shared_(shared.shape()), its_own_(its_own.shape()), heads_(heads), width_(width) {
    add_input(shared);
    add_input(its_own);
  }
  std::string_view name() const override { return "join_heads"; }
  void backward(std::span<Tensor> grads) override {
    const Tensor& dy = grads[0];
    Tensor dshared = Tensor::empty(shared_, dy.dtype()), down = Tensor::zeros(its_own_, dy.dtype());
    const int64_t common = shared_[1], stride = its_own_[1], head = common + width_;
    with_float_type("join_heads", dy.dtype(), [&]<typename T>(T) {
      const T* from = dy.data<T>();
      T *to_shared = dshared.mutable_data<T>(), *to_own = down.mutable_data<T>();
      parallel_for(dy.rows(), row_grain(dy.width()), [&](int64_t r, int64_t end) {
        std::vector<float> sum(common);
        for (; r < end; ++r) {
          const T* row = from + r * heads_ * head;
          std::fill(sum.begin(), sum.end(), 0.0F);
          for (int64_t h = 0; h < heads_; ++h) {
            for (int64_t c = 0; c < common; ++c) sum[c] += static_cast<float>(row[h * head + c]);
            std::copy_n(row + h * head + common, width_, to_own + r * stride + h * width_);
          }
          for (int64_t c = 0; c < common; ++c) to_shared[r * common + c] = T(sum[c]);
        }
      });
    });
    give(0, std::move(dshared));
    give(1, std::move(down));
  }

 private:
  Shape shared_, its_own_;
  int64_t heads_, width_;
};

}  // namespace

Tensor join_heads(const Tensor& shared, const Tensor& its_own, int64_t heads, int64_t width) {
  check(shared.shape().rank() == 2 && its_own.shape().rank() == 2 && shared.rows() == its_own.rows() &&
            heads > 0 && width > 0 && heads * width <= its_own.width(),
        "join_heads: {} heads of {} columns, got {} and {}", heads, width, shared.shape(), its_own.shape());
  expect_dtype("join_heads", "its_own", its_own, shared.dtype());
  const int64_t common = shared.width(), stride = its_own.width(), head = common + width;
  Tensor out = Tensor::empty({shared.rows(), heads * head}, shared.dtype());
  with_float_type("join_heads", shared.dtype(), [&]<typename T>(T) {
    const T *first = shared.data<T>(), *second = its_own.data<T>();
    T* to = out.mutable_data<T>();
    parallel_for(out.rows(), row_grain(out.width()), [&](int64_t r, int64_t end) {
      for (; r < end; ++r)
        for (int64_t h = 0; h < heads; ++h) {
          T* at = to + (r * heads + h) * head;
          std::copy_n(first + r * common, common, at);
          std::copy_n(second + r * stride + h * width, width, at + common);
        }
    });
  });
  if (wants_grad({&shared, &its_own}))
    connect(out, std::make_shared<JoinHeadsNode>(shared, its_own, heads, width));
  return out;
}

Tensor queries_for_latent(const Tensor& q, const Tensor& weight, int64_t heads, int64_t width) {
  check(q.shape().rank() == 2 && weight.shape().rank() == 2 && heads > 0 && q.width() % heads == 0 &&
            q.width() / heads >= width && heads * width <= weight.dim(0),
        "queries_for_latent: {} heads, {} columns of each, got q {} and weight {}", heads, width, q.shape(),
        weight.shape());
  expect_dtype("queries_for_latent", "weight", weight, q.dtype());
  check(!wants_grad({&q, &weight}), "queries_for_latent: has no gradient");
  const int64_t head = q.width() / heads, common = head - width, latent = weight.dim(1),
                out_head = latent + common;
  Tensor out = Tensor::empty({q.rows(), heads * out_head}, q.dtype());
  with_float_type("queries_for_latent", q.dtype(), [&]<typename T>(T) {
    const T* from = q.data<T>();
    T* to = out.mutable_data<T>();
    Tensor turned = Tensor::empty({latent, width}, q.dtype());  // the order in which rows stand alone
    for (int64_t h = 0; h < heads; ++h) {
      const T* w = weight.data<T>() + h * width * latent;
      T* turned_to = turned.mutable_data<T>();
      parallel_for(latent, row_grain(width), [&](int64_t l, int64_t end) {
        for (; l < end; ++l)
          for (int64_t i = 0; i < width; ++i) turned_to[l * width + i] = w[i * latent + l];
      });
      multiply_rows({.m = q.rows(),
                     .n = latent,
                     .k = width,
                     .out = q.dtype(),
                     .a = dense(from + h * head + common, q.dtype(), q.width()),
                     .b = dense(turned_to, q.dtype(), width, true),
                     .c = to + h * out_head,
                     .c_stride = out.width()});
      for (int64_t r = 0; r < q.rows(); ++r)
        std::copy_n(from + r * q.width() + h * head, common, to + r * out.width() + h * out_head + latent);
    }
  });
  return out;
}

Tensor values_from_latent(const Tensor& x, const Tensor& weight, int64_t first, int64_t heads) {
  check(x.shape().rank() == 2 && weight.shape().rank() == 2 && heads > 0 && first >= 0 &&
            first < weight.dim(0) && (weight.dim(0) - first) % heads == 0 &&
            x.width() == heads * weight.dim(1),
        "values_from_latent: {} heads, got x {} and weight {} from row {}", heads, x.shape(), weight.shape(),
        first);
  expect_dtype("values_from_latent", "weight", weight, x.dtype());
  check(!wants_grad({&x, &weight}), "values_from_latent: has no gradient");
  const int64_t width = (weight.dim(0) - first) / heads, latent = weight.dim(1);
  Tensor out = Tensor::empty({x.rows(), heads * width}, x.dtype());
  with_float_type("values_from_latent", x.dtype(), [&]<typename T>(T) {
    for (int64_t h = 0; h < heads; ++h)
      multiply_rows({.m = x.rows(),
                     .n = width,
                     .k = latent,
                     .out = x.dtype(),
                     .a = dense(x.data<T>() + h * latent, x.dtype(), x.width()),
                     .b = dense(weight.data<T>() + (first + h * width) * latent, x.dtype(), latent, true),
                     .c = out.mutable_data<T>() + h * width,
                     .c_stride = out.width()});
  });
  return out;
}

}  // namespace qkv
