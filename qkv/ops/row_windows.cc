#include "qkv/ops/row_windows.h"

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

// Calls f(row of the result, place in it, row of x) for every pair that there is.
template <typename F>
void for_each_pair(const std::vector<int32_t>& offsets, int64_t size, int64_t stride, const F& f) {
  int64_t row = 0;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const int64_t first = offsets[s], n = offsets[s + 1] - first;
    for (int64_t t = 0; t < n; t += stride, ++row)
      for (int64_t i = 0; i < size; ++i) {
        const int64_t from = t + i - size / 2;
        if (from >= 0 && from < n) f(row, i, first + from);
      }
  }
}

int64_t windows_of(const std::vector<int32_t>& offsets, int64_t stride) {
  int64_t rows = 0;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) rows += (offsets[s + 1] - offsets[s] + stride - 1) / stride;
  return rows;
}

class RowWindowsNode : public Node {
 public:
  RowWindowsNode(const Tensor& x, const std::vector<int32_t>& offsets, int64_t size, int64_t stride)
      : shape_(x.shape()), offsets_(offsets), size_(size), stride_(stride) {
    add_input(x);
  }
  std::string_view name() const override { return "row_windows"; }
  void backward(std::span<Tensor> grads) override {
    const Tensor& g = grads[0];
    const int64_t width = shape_[1];
    Tensor sum = Tensor::zeros(shape_, DType::f32);
    float* to = sum.mutable_data<float>();
    with_float_type("row_windows", g.dtype(), [&](auto t) {
      const auto* from = g.data<decltype(t)>();
      for_each_pair(offsets_, size_, stride_, [&](int64_t row, int64_t i, int64_t x) {
        for (int64_t c = 0; c < width; ++c)
          to[x * width + c] += static_cast<float>(from[(row * width + c) * size_ + i]);
      });
    });
    if (g.dtype() == DType::f32) return give(0, std::move(sum));
    Tensor narrow = Tensor::empty(shape_, g.dtype());
    for (int64_t i = 0; i < sum.count(); ++i) narrow.mutable_data<BFloat16>()[i] = BFloat16(to[i]);
    give(0, std::move(narrow));
  }

 private:
  Shape shape_;
  std::vector<int32_t> offsets_;
  int64_t size_, stride_;
};

}  // namespace

Tensor row_windows(const Tensor& x, const std::vector<int32_t>& offsets, int64_t size, int64_t stride) {
  check(x.defined() && x.shape().rank() == 2, "row_windows: expected x [N, C], got {}", x);
  check(size > 0 && size % 2 == 1 && stride > 0, "row_windows: size {} must be odd, stride {} positive", size,
        stride);
  check(!offsets.empty() && offsets.front() == 0 && offsets.back() == x.dim(0),
        "row_windows: offsets do not end at {} rows", x.dim(0));
  const int64_t width = x.width();
  Tensor out = Tensor::zeros({windows_of(offsets, stride), size * width}, x.dtype());
  with_float_type("row_windows", x.dtype(), [&](auto t) {
    const auto* source = x.data<decltype(t)>();
    auto* to = out.mutable_data<decltype(t)>();
    for_each_pair(offsets, size, stride, [&](int64_t row, int64_t i, int64_t from) {
      for (int64_t c = 0; c < width; ++c) to[(row * width + c) * size + i] = source[from * width + c];
    });
  });
  if (wants_grad({&x})) connect(out, std::make_shared<RowWindowsNode>(x, offsets, size, stride));
  return out;
}

}  // namespace qkv
