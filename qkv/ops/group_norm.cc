#include "qkv/ops/group_norm.h"

#include <cmath>
#include <cstring>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

// Statistics that the backward pass needs: for each row and group the mean (0 for RMSNorm) and
// 1 / deviation, f32 [N, groups] each.
struct Statistics {
  Tensor means, scales;
};

struct GroupNorm {
  const char* op;
  ColumnGroups at;
  bool centred;
  bool shared;  // one gamma for all groups

  int64_t weight_at(int64_t g) const { return shared ? 0 : g * at.width; }
};

class GroupNormNode : public Node {
 public:
  GroupNormNode(const Tensor& x, const GroupNorm& norm, const Tensor& gamma, const Tensor& beta,
                const Statistics& of)
      : x_(x.detach()), norm_(norm), gamma_(gamma.detach()), of_(of) {
    add_input(x);
    add_input(gamma);
    add_input(beta);
  }
  std::string_view name() const override { return norm_.op; }
  void backward(std::span<Tensor> grads) override {
    const Tensor& dy = grads[0];
    const int64_t first = norm_.at.first, groups = norm_.at.groups, width = norm_.at.width;
    const int64_t rows = x_.rows(), stride = x_.width(), weights = gamma_.count();
    const int64_t pieces = std::max<int64_t>(1, num_pieces(rows, row_grain(stride)));
    Tensor dx = dy.clone();
    Tensor partial = Tensor::zeros({pieces, 2 * weights}, DType::f32);  // gradients of gamma, then of beta
    with_float_type(norm_.op, x_.dtype(), [&]<typename T>(T) {
      const T *x = x_.data<T>(), *from = dy.data<T>();
      T* to = dx.mutable_data<T>();
      const float *gamma = gamma_.data<float>(), *mean = of_.means.data<float>(),
                  *scale = of_.scales.data<float>();
      float* sums = partial.mutable_data<float>();
      parallel_pieces(rows, row_grain(stride), [&](int64_t piece, int64_t r, int64_t end) {
        float *dgamma = sums + piece * 2 * weights, *dbeta = dgamma + weights;
        for (; r < end; ++r)
          for (int64_t g = 0; g < groups; ++g) {
            const int64_t at = r * stride + first + g * width, of = norm_.weight_at(g);
            const float m = mean[r * groups + g], s = scale[r * groups + g];
            const auto normal = [&](int64_t i) { return (static_cast<float>(x[at + i]) - m) * s; };
            float dot = 0, sum = 0;  // sums of gradients times normalised values, and of gradients
            for (int64_t i = 0; i < width; ++i) {
              const float n = normal(i), d = static_cast<float>(from[at + i]);
              dgamma[of + i] += n * d;
              dbeta[of + i] += d;
              dot += n * d * gamma[of + i];
              sum += d * gamma[of + i];
            }
            dot /= static_cast<float>(width);
            sum = norm_.centred ? sum / static_cast<float>(width) : 0;
            for (int64_t i = 0; i < width; ++i)
              to[at + i] = static_cast<T>(
                  s * (static_cast<float>(from[at + i]) * gamma[of + i] - sum - normal(i) * dot));
          }
      });
    });
    for (const size_t input : {1, 2})
      weight_grad(input, gamma_.shape(), [&](Tensor& target, bool accumulate) {
        float* to = target.mutable_data<float>();
        if (!accumulate) std::memset(to, 0, target.bytes());
        for (int64_t p = 0; p < pieces; ++p)
          kernels().axpy(weights, 1, partial.data<float>() + (2 * p + (input == 2)) * weights, to);
      });
    give(0, std::move(dx));
  }

 private:
  Tensor x_;
  GroupNorm norm_;
  Tensor gamma_;
  Statistics of_;
};

Tensor group_norm(const char* op, const Tensor& x, const ColumnGroups& at, const Tensor& gamma,
                  const Tensor& beta, bool centred, float epsilon) {
  const int64_t first = at.first, groups = at.groups, width = at.width;
  check(x.defined() && x.shape().rank() == 2 && first >= 0 && groups > 0 && width > 0 &&
            first + groups * width <= x.width(),
        "{}: {} groups of {} columns from column {}, got {}", op, groups, width, first, x);
  check(gamma.defined() && (gamma.shape() == Shape{width} || gamma.shape() == Shape{groups * width}),
        "{}: gamma must be [{}] or [{}], got {}", op, width, groups * width, gamma);
  expect_dtype(op, "gamma", gamma, DType::f32);
  check(!beta.defined() || beta.shape() == gamma.shape(), "{}: beta must be {} as gamma is, got {}", op,
        gamma.shape(), beta);
  if (beta.defined()) expect_dtype(op, "beta", beta, DType::f32);
  const GroupNorm norm{op, at, centred, gamma.count() == width};
  Tensor out = x.clone();
  const Statistics of{Tensor::zeros({x.rows(), groups}, DType::f32),
                      Tensor::empty({x.rows(), groups}, DType::f32)};
  Tensor means = of.means, scales = of.scales;
  const int64_t stride = x.width();
  with_float_type(op, x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    const float *weight = gamma.data<float>(), *shift = beta.defined() ? beta.data<float>() : nullptr;
    float *mean = means.mutable_data<float>(), *scale = scales.mutable_data<float>();
    parallel_for(x.rows(), row_grain(stride), [&](int64_t r, int64_t end) {
      for (; r < end; ++r)
        for (int64_t g = 0; g < groups; ++g) {
          const int64_t c = r * stride + first + g * width, w = norm.weight_at(g);
          float m = 0, sum = 0;
          for (int64_t i = 0; i < width && centred; ++i) m += static_cast<float>(from[c + i]);
          m /= static_cast<float>(width);
          for (int64_t i = 0; i < width; ++i) {
            const float d = static_cast<float>(from[c + i]) - m;
            sum += d * d;
          }
          const float s = 1 / std::sqrt(sum / static_cast<float>(width) + epsilon);
          mean[r * groups + g] = m;
          scale[r * groups + g] = s;
          for (int64_t i = 0; i < width; ++i)
            to[c + i] = static_cast<T>((static_cast<float>(from[c + i]) - m) * s * weight[w + i] +
                                       (shift != nullptr ? shift[w + i] : 0));
        }
    });
  });
  if (wants_grad({&x, &gamma, &beta}))
    connect(out, std::make_shared<GroupNormNode>(x, norm, gamma, beta, of));
  return out;
}

}  // namespace

Tensor group_rms_norm(const Tensor& x, const ColumnGroups& at, const Tensor& gamma, float epsilon) {
  return group_norm("group_rms_norm", x, at, gamma, {}, false, epsilon);
}

Tensor group_layer_norm(const Tensor& x, const ColumnGroups& at, const Tensor& gamma, const Tensor& beta,
                        float epsilon) {
  return group_norm("group_layer_norm", x, at, gamma, beta, true, epsilon);
}

}  // namespace qkv
