#include "qkv/ops/token_shift.h"

#include <algorithm>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

class PreviousRowsNode : public Node {
 public:
  PreviousRowsNode(const Tensor& x, const Tensor& first, std::vector<int32_t> offsets)
      : shape_(x.shape()), type_(x.dtype()), offsets_(std::move(offsets)) {
    add_input(x);
    add_input(first);
  }
  std::string_view name() const override { return "previous_rows"; }
  void backward(std::span<Tensor> grads) override {
    const int64_t width = shape_[1], sequences = std::ssize(offsets_) - 1;
    with_float_type("previous_rows", type_, [&]<typename T>(T) {
      const T* dy = grads[0].data<T>();
      if (wants(0)) {
        Tensor dx = Tensor::zeros(shape_, type_);
        T* to = dx.mutable_data<T>();
        for (int64_t s = 0; s < sequences; ++s)
          if (const int64_t begin = offsets_[s], end = offsets_[s + 1]; begin < end)
            std::copy(dy + (begin + 1) * width, dy + end * width, to + begin * width);
        give(0, std::move(dx));
      }
      if (!wants(1)) return;
      Tensor dfirst = Tensor::zeros({sequences, width}, DType::f32);
      float* to = dfirst.mutable_data<float>();
      for (int64_t s = 0; s < sequences; ++s)
        for (int64_t c = 0; c < width && offsets_[s] < offsets_[s + 1]; ++c)
          to[s * width + c] = static_cast<float>(dy[offsets_[s] * width + c]);
      give(1, std::move(dfirst));
    });
  }

 private:
  Shape shape_;
  DType type_;
  std::vector<int32_t> offsets_;
};

class MixedNode : public Node {
 public:
  MixedNode(const Tensor& from, const Tensor& to, const Tensor& part) {
    for (const Tensor* x : {&from, &to, &part}) add_input(*x);
    from_ = from.detach();
    to_ = to.detach();
    part_ = part.detach();
  }
  std::string_view name() const override { return "mixed"; }
  void backward(std::span<Tensor> grads) override {
    with_float_type("mixed", from_.dtype(), [&]<typename T>(T) {
      if (part_.shape().rank() == 1)
        backward_of<T>(grads[0].data<T>(), part_.data<float>(), false);
      else
        backward_of<T>(grads[0].data<T>(), part_.data<T>(), true);
    });
  }

 private:
  template <typename T, typename P>
  void backward_of(const T* dy, const P* part, bool of_rows) {
    const int64_t rows = from_.dim(0), width = from_.width();
    const auto given = [&](int input, const auto& f) {
      if (!wants(input)) return;
      Tensor d = Tensor::empty(from_.shape(), from_.dtype());
      T* out = d.template mutable_data<T>();
      parallel_for(rows, row_grain(width), [&](int64_t r, int64_t end) {
        for (; r < end; ++r)
          for (int64_t c = 0; c < width; ++c)
            out[r * width + c] = T(f(r * width + c, of_rows ? r * width + c : c));
      });
      give(input, std::move(d));
    };
    const T *a = from_.data<T>(), *b = to_.data<T>();
    const auto grad = [&](int64_t i) { return static_cast<float>(dy[i]); };
    const auto way = [&](int64_t i) { return static_cast<float>(b[i]) - static_cast<float>(a[i]); };
    given(0, [&](int64_t i, int64_t p) { return grad(i) * (1 - static_cast<float>(part[p])); });
    given(1, [&](int64_t i, int64_t p) { return grad(i) * static_cast<float>(part[p]); });
    if (of_rows) return given(2, [&](int64_t i, int64_t) { return grad(i) * way(i); });
    if (!wants(2)) return;
    weight_grad(2, {width}, [&](Tensor& target, bool accumulate) {
      float* sums = target.mutable_data<float>();
      if (!accumulate) std::fill_n(sums, width, 0.0F);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < width; ++c) sums[c] += grad(r * width + c) * way(r * width + c);
    });
  }

  Tensor from_, to_, part_;
};

}  // namespace

Tensor previous_rows(const Tensor& x, const Tensor& first, std::span<const int32_t> offsets) {
  check(x.defined() && x.shape().rank() == 2, "previous_rows: expected x [N, D], got {}", x);
  const int64_t rows = x.dim(0), width = x.width(), sequences = std::ssize(offsets) - 1;
  check(sequences >= 0 && offsets.front() == 0 && offsets.back() == rows && std::ranges::is_sorted(offsets),
        "previous_rows: the offsets do not fit x {}", x);
  if (first.defined()) {
    expect_shape("previous_rows", "first", first, {sequences, width});
    expect_dtype("previous_rows", "first", first, DType::f32);
  }
  Tensor out = Tensor::zeros(x.shape(), x.dtype());
  with_float_type("previous_rows", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    for (int64_t s = 0; s < sequences; ++s) {
      const int64_t begin = offsets[s], end = offsets[s + 1];
      if (begin == end) continue;
      if (first.defined())
        for (int64_t c = 0; c < width; ++c) to[begin * width + c] = T(first.data<float>()[s * width + c]);
      std::copy(from + begin * width, from + (end - 1) * width, to + (begin + 1) * width);
    }
  });
  if (wants_grad({&x, &first}))
    connect(out, std::make_shared<PreviousRowsNode>(x, first, std::vector(offsets.begin(), offsets.end())));
  return out;
}

Tensor mixed(const Tensor& from, const Tensor& to, const Tensor& part) {
  check(from.defined() && from.shape().rank() == 2, "mixed: expected rows [N, D], got {}", from);
  check(to.defined() && to.shape() == from.shape() && to.dtype() == from.dtype(),
        "mixed: expected rows like {}, got {}", from, to);
  const int64_t rows = from.dim(0), width = from.width();
  const bool of_rows = part.defined() && part.shape().rank() == 2;
  check(part.defined() && (of_rows ? part.shape() == from.shape() && part.dtype() == from.dtype()
                                   : part.shape() == Shape({width}) && part.dtype() == DType::f32),
        "mixed: expected parts f32 [{}] or like {}, got {}", width, from, part);
  Tensor out = Tensor::empty(from.shape(), from.dtype());
  with_float_type("mixed", from.dtype(), [&]<typename T>(T) {
    const T *a = from.data<T>(), *b = to.data<T>();
    T* y = out.mutable_data<T>();
    const auto run = [&](const auto* p, bool each_row) {
      parallel_for(rows, row_grain(width), [&](int64_t r, int64_t end) {
        for (; r < end; ++r)
          for (int64_t c = 0; c < width; ++c) {
            const int64_t i = r * width + c;
            const float x = static_cast<float>(a[i]);
            y[i] = T(x + static_cast<float>(p[each_row ? i : c]) * (static_cast<float>(b[i]) - x));
          }
      });
    };
    if (of_rows)
      run(part.data<T>(), true);
    else
      run(part.data<float>(), false);
  });
  if (wants_grad({&from, &to, &part})) connect(out, std::make_shared<MixedNode>(from, to, part));
  return out;
}

}  // namespace qkv
