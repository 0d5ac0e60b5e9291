#include "qkv/ops/short_convolution.h"

#include <algorithm>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

constexpr int64_t kBlock = 64;  // channels at once in the gradients of weights

// The row t of a sequence, counted from its first; those before it are of `first`. As f32 in `room` where it
// has another type.
template <typename T>
class Rows {
 public:
  Rows(const Tensor& x, const Tensor& first, std::span<const int32_t> offsets, int64_t kernel)
      : x_(x.data<T>()),
        first_(first.defined() ? first.data<float>() : nullptr),
        offsets_(offsets),
        width_(x.width()),
        before_(kernel - 1) {}
  // f(value of channel c) for channels [begin, end).
  template <typename F>
  void for_each(int64_t s, int64_t t, int64_t begin, int64_t end, const F& f) const {
    if (t >= 0) {
      const T* row = x_ + (offsets_[s] + t) * width_;
      for (int64_t c = begin; c < end; ++c) f(c, static_cast<float>(row[c]));
    } else if (first_ != nullptr) {
      const float* row = first_ + (s * before_ + before_ + t) * width_;
      for (int64_t c = begin; c < end; ++c) f(c, row[c]);
    }
  }

 private:
  const T* x_;
  const float* first_;
  std::span<const int32_t> offsets_;
  int64_t width_, before_;
};

// Weights [C, K] as [K, C].
std::vector<float> by_place(const Tensor& weight) {
  const int64_t channels = weight.dim(0), kernel = weight.dim(1);
  std::vector<float> out(static_cast<size_t>(channels * kernel));
  const float* w = weight.data<float>();
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t j = 0; j < kernel; ++j) out[j * channels + c] = w[c * kernel + j];
  return out;
}

std::vector<int32_t> sequence_of_rows(std::span<const int32_t> offsets) {
  std::vector<int32_t> of;
  for (int32_t s = 0; s + 1 < std::ssize(offsets); ++s) of.resize(static_cast<size_t>(offsets[s + 1]), s);
  return of;
}

class ShortConvolutionNode : public Node {
 public:
  ShortConvolutionNode(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& first,
                       std::span<const int32_t> offsets)
      : offsets_(offsets.begin(), offsets.end()) {
    for (const Tensor* in : {&x, &weight, &bias, &first}) add_input(*in);
    x_ = x.detach();
    weight_ = weight.detach();
    first_ = first.detach();
  }
  std::string_view name() const override { return "short_convolution"; }
  void backward(std::span<Tensor> grads) override {
    with_float_type("short_convolution", x_.dtype(), [&]<typename T>(T) { backward_of<T>(grads[0]); });
  }

 private:
  enum : int { kX, kWeight, kBias, kFirst };

  template <typename T>
  void backward_of(const Tensor& dy) {
    const int64_t width = x_.width(), kernel = weight_.dim(1), before = kernel - 1,
                  sequences = std::ssize(offsets_) - 1;
    const std::vector<float> w = by_place(weight_);
    const T* grad = dy.data<T>();
    // The gradient of row t of a sequence; t < 0: of a row before it.
    const auto row_grad = [&](int64_t s, int64_t t, float* to) {
      std::fill_n(to, width, 0.0F);
      const int64_t length = offsets_[s + 1] - offsets_[s];
      for (int64_t j = 0; j < kernel; ++j) {
        const int64_t at = t + before - j;
        if (at < 0 || at >= length) continue;
        const T* from = grad + (offsets_[s] + at) * width;
        for (int64_t c = 0; c < width; ++c) to[c] += w[j * width + c] * static_cast<float>(from[c]);
      }
    };
    if (wants(kX)) {
      Tensor dx = Tensor::empty(x_.shape(), x_.dtype());
      T* to = dx.mutable_data<T>();
      const std::vector<int32_t> of = sequence_of_rows(offsets_);
      parallel_for(x_.dim(0), row_grain(kernel * width), [&](int64_t i, int64_t end) {
        std::vector<float> row(static_cast<size_t>(width));
        for (; i < end; ++i) {
          row_grad(of[i], i - offsets_[of[i]], row.data());
          for (int64_t c = 0; c < width; ++c) to[i * width + c] = T(row[c]);
        }
      });
      give(kX, std::move(dx));
    }
    if (first_.defined() && wants(kFirst)) {
      Tensor d = Tensor::empty(first_.shape(), DType::f32);
      for (int64_t s = 0; s < sequences; ++s)
        for (int64_t r = 0; r < before; ++r)
          row_grad(s, r - before, d.mutable_data<float>() + (s * before + r) * width);
      give(kFirst, std::move(d));
    }
    const auto by_channels = [&](const auto& f) {
      parallel_for((width + kBlock - 1) / kBlock, 1, [&](int64_t b, int64_t end) {
        for (; b < end; ++b) f(b * kBlock, std::min(width, (b + 1) * kBlock));
      });
    };
    if (wants(kBias))
      weight_grad(kBias, {width}, [&](Tensor& target, bool accumulate) {
        float* to = target.mutable_data<float>();
        by_channels([&](int64_t begin, int64_t end) {
          if (!accumulate) std::fill(to + begin, to + end, 0.0F);
          for (int64_t i = 0; i < dy.dim(0); ++i)
            for (int64_t c = begin; c < end; ++c) to[c] += static_cast<float>(grad[i * width + c]);
        });
      });
    if (!wants(kWeight)) return;
    const Rows<T> rows(x_, first_, offsets_, kernel);
    weight_grad(kWeight, weight_.shape(), [&](Tensor& target, bool accumulate) {
      float* to = target.mutable_data<float>();
      by_channels([&](int64_t begin, int64_t end) {
        std::vector<float> sums(static_cast<size_t>(kernel * kBlock));
        for (int64_t s = 0; s < sequences; ++s)
          for (int64_t t = 0; t < offsets_[s + 1] - offsets_[s]; ++t) {
            const T* from = grad + (offsets_[s] + t) * width;
            for (int64_t j = 0; j < kernel; ++j)
              rows.for_each(s, t - before + j, begin, end, [&](int64_t c, float x) {
                sums[j * kBlock + c - begin] += x * static_cast<float>(from[c]);
              });
          }
        for (int64_t c = begin; c < end; ++c)
          for (int64_t j = 0; j < kernel; ++j)
            to[c * kernel + j] = sums[j * kBlock + c - begin] + (accumulate ? to[c * kernel + j] : 0);
      });
    });
  }

  std::vector<int32_t> offsets_;
  Tensor x_, weight_, first_;
};

void expect_rows(const Tensor& x, const Tensor& first, std::span<const int32_t> offsets, int64_t kernel) {
  check(x.defined() && x.shape().rank() == 2 && !offsets.empty() && offsets.back() == x.dim(0),
        "short_convolution: expected x [N, C] of the sequences' rows, got {}", x);
  check(!first.defined() || (first.dtype() == DType::f32 &&
                             first.shape() == Shape({std::ssize(offsets) - 1, (kernel - 1) * x.width()})),
        "short_convolution: expected first rows f32 [{}, {}], got {}", std::ssize(offsets) - 1,
        (kernel - 1) * x.width(), first);
}

}  // namespace

Tensor short_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& first,
                         std::span<const int32_t> offsets) {
  check(weight.defined() && weight.dtype() == DType::f32 && weight.shape().rank() == 2 && weight.dim(1) > 0,
        "short_convolution: expected weight f32 [C, K], got {}", weight);
  const int64_t kernel = weight.dim(1);
  expect_rows(x, first, offsets, kernel);
  const int64_t width = x.width();
  check(weight.dim(0) == width &&
            (!bias.defined() || (bias.dtype() == DType::f32 && bias.shape() == Shape({width}))),
        "short_convolution: weight {} and bias {} do not fit x {}", weight, bias, x);
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  const std::vector<float> w = by_place(weight);
  const std::vector<int32_t> of = sequence_of_rows(offsets);
  with_float_type("short_convolution", x.dtype(), [&]<typename T>(T) {
    const Rows<T> rows(x, first, offsets, kernel);
    T* to = out.mutable_data<T>();
    parallel_for(x.dim(0), row_grain(kernel * width), [&](int64_t i, int64_t end) {
      std::vector<float> sum(static_cast<size_t>(width));
      for (; i < end; ++i) {
        if (bias.defined())
          std::copy_n(bias.data<float>(), width, sum.data());
        else
          std::ranges::fill(sum, 0.0F);
        for (int64_t j = 0; j < kernel; ++j)
          rows.for_each(of[i], i - offsets[of[i]] - kernel + 1 + j, 0, width,
                        [&](int64_t c, float v) { sum[c] += w[j * width + c] * v; });
        for (int64_t c = 0; c < width; ++c) to[i * width + c] = T(sum[c]);
      }
    });
  });
  if (wants_grad({&x, &weight, &bias, &first}))
    connect(out, std::make_shared<ShortConvolutionNode>(x, weight, bias, first, offsets));
  return out;
}

Tensor convolution_tail(const Tensor& x, const Tensor& first, std::span<const int32_t> offsets,
                        std::span<const int32_t> counts, int64_t kernel) {
  expect_rows(x, first, offsets, kernel);
  const int64_t sequences = std::ssize(offsets) - 1, width = x.width(), before = kernel - 1;
  check(std::ssize(counts) == sequences, "convolution_tail: {} counts of {} sequences", std::ssize(counts),
        sequences);
  Tensor out = Tensor::zeros({sequences, before * width}, DType::f32);
  with_float_type("convolution_tail", x.dtype(), [&]<typename T>(T) {
    const Rows<T> rows(x, first, offsets, kernel);
    for (int64_t s = 0; s < sequences; ++s)
      for (int64_t r = 0; r < before; ++r) {
        float* to = out.mutable_data<float>() + (s * before + r) * width;
        rows.for_each(s, counts[s] - before + r, 0, width, [&](int64_t c, float v) { to[c] = v; });
      }
  });
  return out;
}

}  // namespace qkv
