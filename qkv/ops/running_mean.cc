#include "qkv/ops/running_mean.h"

#include <algorithm>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

constexpr int64_t kColumns = 64;  // columns per task

// Calls f(s, begin, end) for the columns [begin, end) of each sequence s, until all columns are covered.
template <typename F>
void for_sequences_and_columns(int64_t sequences, int64_t width, const F& f) {
  const int64_t parts = (width + kColumns - 1) / kColumns;
  parallel_for(sequences * parts, 1, [&](int64_t task, int64_t last) {
    for (; task < last; ++task) {
      const int64_t begin = task % parts * kColumns;
      f(task / parts, begin, std::min(begin + kColumns, width));
    }
  });
}

// y_t = (x_1 + ... + x_t) / t:  dx_t = dy_t / t + dy_{t + 1} / (t + 1) + ...
class RunningMeanNode : public Node {
 public:
  RunningMeanNode(const Tensor& x, std::span<const int32_t> offsets, std::span<const int64_t> counts)
      : offsets_(offsets.begin(), offsets.end()), counts_(counts.begin(), counts.end()), width_(x.width()) {
    add_input(x);
  }
  std::string_view name() const override { return "running_mean"; }
  void backward(std::span<Tensor> grads) override {
    const Tensor& dy = grads[0];
    Tensor dx = Tensor::empty(dy.shape(), dy.dtype());
    with_float_type("running_mean", dy.dtype(), [&]<typename T>(T) {
      const T* from = dy.data<T>();
      T* to = dx.mutable_data<T>();
      for_sequences_and_columns(std::ssize(offsets_) - 1, width_, [&](int64_t s, int64_t begin, int64_t end) {
        float sums[kColumns] = {};
        const int64_t before = counts_.empty() ? 0 : counts_[s];
        for (int64_t r = offsets_[s + 1] - 1; r >= offsets_[s]; --r) {
          const auto n = static_cast<float>(before + r - offsets_[s] + 1);
          for (int64_t c = begin; c < end; ++c) {
            sums[c - begin] += static_cast<float>(from[r * width_ + c]) / n;
            to[r * width_ + c] = T(sums[c - begin]);
          }
        }
      });
    });
    give(0, std::move(dx));
  }

 private:
  std::vector<int32_t> offsets_;
  std::vector<int64_t> counts_;
  int64_t width_;
};

}  // namespace

RunningMean running_mean(const Tensor& x, std::span<const int32_t> offsets, const Tensor& first,
                         std::span<const int64_t> counts) {
  check(x.defined() && x.shape().rank() == 2 && !offsets.empty() && offsets.back() == x.rows(),
        "running_mean: the offsets do not fit x");
  const int64_t width = x.width(), sequences = std::ssize(offsets) - 1;
  check(!first.defined() || (first.dtype() == DType::f32 && first.shape() == Shape({sequences, width}) &&
                             std::ssize(counts) == sequences),
        "running_mean: expected sums f32 [{}, {}] and {} counts", sequences, width, sequences);
  check(first.defined() || counts.empty(), "running_mean: there are counts, but no sums");
  RunningMean out{Tensor::empty(x.shape(), x.dtype()),
                  first.defined() ? Tensor::empty(x.shape(), DType::f32) : Tensor()};
  with_float_type("running_mean", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mean.mutable_data<T>();
    float* kept = first.defined() ? out.sums.mutable_data<float>() : nullptr;
    for_sequences_and_columns(sequences, width, [&](int64_t s, int64_t begin, int64_t end) {
      float sums[kColumns] = {};
      int64_t n = 0;
      if (first.defined()) {
        n = counts[s];
        std::copy_n(first.data<float>() + s * width + begin, end - begin, sums);
      }
      for (int64_t r = offsets[s]; r < offsets[s + 1]; ++r) {
        ++n;
        for (int64_t c = begin; c < end; ++c) {
          const float sum = sums[c - begin] += static_cast<float>(from[r * width + c]);
          to[r * width + c] = T(sum / static_cast<float>(n));
          if (kept != nullptr) kept[r * width + c] = sum;
        }
      }
    });
  });
  if (wants_grad({&x})) connect(out.mean, std::make_shared<RunningMeanNode>(x, offsets, counts));
  return out;
}

}  // namespace qkv
