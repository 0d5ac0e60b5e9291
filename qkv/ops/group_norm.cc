#include "qkv/ops/group_norm.h"

#include <cmath>
#include <cstring>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

struct Groups {
  int64_t first, groups, width;
  bool shared;  // one gamma for all groups

  int64_t gamma_at(int64_t g) const { return shared ? 0 : g * width; }
};

class GroupRmsNormNode : public Node {
 public:
  GroupRmsNormNode(const Tensor& x, const Groups& g, const Tensor& gamma, const Tensor& scales)
      : x_(x.detach()), g_(g), gamma_(gamma.detach()), scales_(scales) {
    add_input(x);
    add_input(gamma);
  }
  std::string_view name() const override { return "group_rms_norm"; }
  void backward(std::span<Tensor> grads) override {
    const Tensor& dy = grads[0];
    const int64_t rows = x_.rows(), stride = x_.width();
    const int64_t pieces = std::max<int64_t>(1, num_pieces(rows, row_grain(stride)));
    Tensor dx = dy.clone();
    Tensor partial = Tensor::zeros({pieces, gamma_.count()}, DType::f32);
    with_float_type("group_rms_norm", x_.dtype(), [&]<typename T>(T) {
      const T *x = x_.data<T>(), *from = dy.data<T>();
      T* to = dx.mutable_data<T>();
      const float *gamma = gamma_.data<float>(), *scale = scales_.data<float>();
      float* sums = partial.mutable_data<float>();
      parallel_pieces(rows, row_grain(stride), [&](int64_t piece, int64_t r, int64_t end) {
        float* dgamma = sums + piece * gamma_.count();
        for (; r < end; ++r)
          for (int64_t g = 0; g < g_.groups; ++g) {
            const int64_t at = r * stride + g_.first + g * g_.width, of = g_.gamma_at(g);
            const float s = scale[r * g_.groups + g];
            float dot = 0;  // of the normalised values with their gradient
            for (int64_t i = 0; i < g_.width; ++i) {
              const float n = static_cast<float>(x[at + i]) * s, d = static_cast<float>(from[at + i]);
              dgamma[of + i] += n * d;
              dot += n * d * gamma[of + i];
            }
            dot /= static_cast<float>(g_.width);
            for (int64_t i = 0; i < g_.width; ++i) {
              const float n = static_cast<float>(x[at + i]) * s;
              to[at + i] = static_cast<T>(s * (static_cast<float>(from[at + i]) * gamma[of + i] - n * dot));
            }
          }
      });
    });
    weight_grad(1, gamma_.shape(), [&](Tensor& target, bool accumulate) {
      float* to = target.mutable_data<float>();
      if (!accumulate) std::memset(to, 0, target.bytes());
      for (int64_t p = 0; p < pieces; ++p)
        kernels().axpy(gamma_.count(), 1, partial.data<float>() + p * gamma_.count(), to);
    });
    give(0, std::move(dx));
  }

 private:
  Tensor x_;
  Groups g_;
  Tensor gamma_, scales_;
};

}  // namespace

Tensor group_rms_norm(const Tensor& x, int64_t first, int64_t groups, int64_t width, const Tensor& gamma,
                      float epsilon) {
  check(x.defined() && x.shape().rank() == 2 && first >= 0 && groups > 0 && width > 0 &&
            first + groups * width <= x.width(),
        "group_rms_norm: {} groups of {} columns from column {}, got {}", groups, width, first,
        x.defined() ? x.shape().text() : "nothing");
  check(gamma.defined() && (gamma.shape() == Shape{width} || gamma.shape() == Shape{groups * width}),
        "group_rms_norm: gamma must be [{}] or [{}], got {}", width, groups * width,
        gamma.defined() ? gamma.shape().text() : "nothing");
  expect_dtype("group_rms_norm", "gamma", gamma, DType::f32);
  const Groups at{first, groups, width, gamma.count() == width};
  Tensor out = x.clone();
  Tensor scales = Tensor::empty({x.rows(), groups}, DType::f32);  // 1 / root mean square
  const int64_t stride = x.width();
  with_float_type("group_rms_norm", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    const float* weight = gamma.data<float>();
    float* scale = scales.mutable_data<float>();
    parallel_for(x.rows(), row_grain(stride), [&](int64_t r, int64_t end) {
      for (; r < end; ++r)
        for (int64_t g = 0; g < groups; ++g) {
          const int64_t c = r * stride + first + g * width, of = at.gamma_at(g);
          float sum = 0;
          for (int64_t i = 0; i < width; ++i)
            sum += static_cast<float>(from[c + i]) * static_cast<float>(from[c + i]);
          const float s = 1 / std::sqrt(sum / static_cast<float>(width) + epsilon);
          scale[r * groups + g] = s;
          for (int64_t i = 0; i < width; ++i)
            to[c + i] = static_cast<T>(static_cast<float>(from[c + i]) * s * weight[of + i]);
        }
    });
  });
  if (wants_grad({&x, &gamma})) connect(out, std::make_shared<GroupRmsNormNode>(x, at, gamma, scales));
  return out;
}

}  // namespace qkv
