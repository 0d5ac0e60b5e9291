#include "qkv/ops/rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

class SelectRowsNode : public Node {
 public:
  SelectRowsNode(const Tensor& x, const Indices& rows) : rows_(rows), shape_(x.shape()) { add_input(x); }
  std::string_view name() const override { return "select_rows"; }
  void backward(std::span<Tensor> grads) override {
    const Tensor& dy = grads[0];
    Tensor dx = Tensor::zeros(shape_, dy.dtype());
    const int64_t width = shape_[1];
    with_float_type("select_rows", dy.dtype(), [&]<typename T>(T) {
      const T* from = dy.data<T>();
      T* to = dx.mutable_data<T>();
      for (int64_t m = 0; m < rows_.count(); ++m) {  // in order: a row may be selected twice
        T* row = to + rows_[m] * width;
        kernels().typed<T>().add(width, row, from + m * width, row);
      }
    });
    give(0, std::move(dx));
  }

 private:
  Indices rows_;
  Shape shape_;
};

}  // namespace

Tensor select_rows(const Tensor& x, const Indices& rows) {
  check(x.defined() && x.shape().rank() == 2 && rows.defined() && rows.rank() == 1,
        "select_rows: expected x [N, D] and rows [M]");
  const int64_t bytes = x.width() * size_of(x.dtype());
  Tensor out = Tensor::empty({rows.count(), x.width()}, x.dtype());
  for (int64_t m = 0; m < rows.count(); ++m) {
    const int32_t row = rows[m];
    check(row >= 0 && row < x.rows(), "select_rows: row {} of {}", row, x.rows());
    std::memcpy(static_cast<std::byte*>(out.raw()) + m * bytes,
                static_cast<const std::byte*>(x.raw()) + row * bytes, bytes);
  }
  if (wants_grad({&x})) connect(out, std::make_shared<SelectRowsNode>(x, rows));
  return out;
}

namespace {

class ReplaceRowsNode : public Node {
 public:
  ReplaceRowsNode(const Tensor& x, const Indices& rows, const Tensor& y) : rows_(rows) {
    add_input(x);
    add_input(y);
  }
  std::string_view name() const override { return "replace_rows"; }
  void backward(std::span<Tensor> grads) override {
    const NoGrad guard;
    if (wants(1)) give(1, select_rows(grads[0], rows_));
    Tensor dx = grads[0].clone();
    const int64_t bytes = dx.width() * size_of(dx.dtype());
    for (const int32_t row : rows_.values())
      std::memset(static_cast<std::byte*>(dx.raw()) + row * bytes, 0, static_cast<size_t>(bytes));
    give(0, std::move(dx));
  }

 private:
  Indices rows_;
};

}  // namespace

Tensor replace_rows(const Tensor& x, const Indices& rows, const Tensor& y) {
  check(x.defined() && x.shape().rank() == 2 && rows.defined() && rows.rank() == 1,
        "replace_rows: expected x [N, D] and rows [M]");
  expect_shape("replace_rows", "y", y, {rows.count(), x.width()});
  expect_dtype("replace_rows", "y", y, x.dtype());
  Tensor out = x.detach().clone();
  const int64_t bytes = x.width() * size_of(x.dtype());
  std::vector<bool> taken(static_cast<size_t>(x.rows()));
  for (int64_t m = 0; m < rows.count(); ++m) {
    const int32_t row = rows[m];
    check(row >= 0 && row < x.rows(), "replace_rows: row {} of {}", row, x.rows());
    check(!taken[static_cast<size_t>(row)], "replace_rows: row {} is replaced twice", row);
    taken[static_cast<size_t>(row)] = true;
    std::memcpy(static_cast<std::byte*>(out.raw()) + row * bytes,
                static_cast<const std::byte*>(y.raw()) + m * bytes, static_cast<size_t>(bytes));
  }
  if (wants_grad({&x, &y})) connect(out, std::make_shared<ReplaceRowsNode>(x, rows, y));
  return out;
}

namespace {

class MeanOfSequencesNode : public Node {
 public:
  MeanOfSequencesNode(const Tensor& x, std::span<const int32_t> offsets)
      : offsets_(offsets.begin(), offsets.end()), shape_(x.shape()) {
    add_input(x);
  }
  std::string_view name() const override { return "mean_of_sequences"; }
  void backward(std::span<Tensor> grads) override {
    const Tensor& dy = grads[0];
    Tensor dx = Tensor::empty(shape_, dy.dtype());
    const int64_t width = shape_[1];
    with_float_type("mean_of_sequences", dy.dtype(), [&]<typename T>(T) {
      const T* from = dy.data<T>();
      T* to = dx.mutable_data<T>();
      for (size_t s = 0; s + 1 < offsets_.size(); ++s) {
        const float share = 1 / static_cast<float>(offsets_[s + 1] - offsets_[s]);
        for (int64_t r = offsets_[s]; r < offsets_[s + 1]; ++r)
          for (int64_t c = 0; c < width; ++c)
            to[r * width + c] = T(share * static_cast<float>(from[static_cast<int64_t>(s) * width + c]));
      }
    });
    give(0, std::move(dx));
  }

 private:
  std::vector<int32_t> offsets_;
  Shape shape_;
};

}  // namespace

Tensor mean_of_sequences(const Tensor& x, std::span<const int32_t> offsets) {
  check(x.defined() && x.shape().rank() == 2 && !offsets.empty() && offsets.back() == x.rows(),
        "mean_of_sequences: the offsets do not fit x");
  const int64_t width = x.width(), sequences = std::ssize(offsets) - 1;
  Tensor out = Tensor::empty({sequences, width}, x.dtype());
  with_float_type("mean_of_sequences", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    std::vector<float> sum(width);
    for (int64_t s = 0; s < sequences; ++s) {
      check(offsets[s] < offsets[s + 1], "mean_of_sequences: sequence {} is empty", s);
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (int64_t r = offsets[s]; r < offsets[s + 1]; ++r)
        for (int64_t c = 0; c < width; ++c) sum[c] += static_cast<float>(from[r * width + c]);
      const auto n = static_cast<float>(offsets[s + 1] - offsets[s]);
      for (int64_t c = 0; c < width; ++c) to[s * width + c] = T(sum[c] / n);
    }
  });
  if (wants_grad({&x})) connect(out, std::make_shared<MeanOfSequencesNode>(x, offsets));
  return out;
}

namespace {

template <typename T>
float norm_of(const T* x, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<float>(x[i]) * static_cast<float>(x[i]);
  return std::sqrt(sum);
}

// y = x / |x|: dx = (dy - y (y . dy)) / |x|.
class UnitRowsNode : public Node {
 public:
  explicit UnitRowsNode(const Tensor& x) : x_(x.detach()) { add_input(x); }
  std::string_view name() const override { return "unit_rows"; }
  void backward(std::span<Tensor> grads) override {
    const Tensor dy_given = convert(grads[0], x_.dtype());  // f32 if a product used it as a weight
    Tensor dx = Tensor::empty(x_.shape(), x_.dtype());
    const int64_t width = x_.width();
    with_float_type("unit_rows", x_.dtype(), [&]<typename T>(T) {
      const T *x = x_.data<T>(), *dy = dy_given.data<T>();
      T* to = dx.mutable_data<T>();
      parallel_for(x_.rows(), row_grain(width), [&](int64_t r, int64_t end) {
        for (; r < end; ++r) {
          const T *row = x + r * width, *d = dy + r * width;
          const float norm = norm_of(row, width), inverse = norm > 0 ? 1 / norm : 0;
          float along = 0;
          for (int64_t c = 0; c < width; ++c)
            along += static_cast<float>(row[c]) * inverse * static_cast<float>(d[c]);
          for (int64_t c = 0; c < width; ++c)
            to[r * width + c] =
                T((static_cast<float>(d[c]) - static_cast<float>(row[c]) * inverse * along) * inverse);
        }
      });
    });
    give(0, std::move(dx));
  }

 private:
  Tensor x_;
};

}  // namespace

Tensor unit_rows(const Tensor& x) {
  check(x.defined() && x.shape().rank() == 2, "unit_rows: expected x [N, D]");
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  const int64_t width = x.width();
  with_float_type("unit_rows", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    parallel_for(x.rows(), row_grain(width), [&](int64_t r, int64_t end) {
      for (; r < end; ++r) {
        const float norm = norm_of(from + r * width, width), inverse = norm > 0 ? 1 / norm : 0;
        for (int64_t c = 0; c < width; ++c)
          to[r * width + c] = T(static_cast<float>(from[r * width + c]) * inverse);
      }
    });
  });
  if (wants_grad({&x})) connect(out, std::make_shared<UnitRowsNode>(x));
  return out;
}

namespace {

class FoundRowsNode : public Node {
 public:
  FoundRowsNode(const Tensor& scores, Tensor gradient) : gradient_(std::move(gradient)) { add_input(scores); }
  std::string_view name() const override { return "find_rows_cross_entropy"; }
  void backward(std::span<Tensor> grads) override {
    const float dy = grads[0].item();
    float* g = gradient_.mutable_data<float>();
    for (int64_t i = 0; i < gradient_.count(); ++i) g[i] *= dy;
    give(0, std::move(gradient_));
  }

 private:
  Tensor gradient_;  // gradient of the loss with respect to the scores
};

}  // namespace

FoundRowsLoss find_rows_cross_entropy(const Tensor& scores, std::span<const int32_t> offsets,
                                      const Indices& targets, float scale) {
  constexpr const char* kOp = "find_rows_cross_entropy";
  check(scores.defined() && scores.shape().rank() == 2, "{}: expected scores [N, C]", kOp);
  const int64_t groups = std::ssize(offsets) - 1, columns = scores.width();
  check(groups >= 0 && offsets.front() == 0 && offsets.back() == scores.rows() &&
            std::ranges::is_sorted(offsets),
        "{}: the offsets do not fit {} rows", kOp, scores.rows());
  expect_dtype(kOp, "scores", scores, DType::f32);
  expect_shape(kOp, "targets", targets, columns == 1 ? Shape{groups} : Shape{groups, columns});
  Tensor gradient = Tensor::zeros(scores.shape(), DType::f32);
  const auto* z = scores.data<float>();
  auto* dz = gradient.mutable_data<float>();
  const double share = 1 / static_cast<double>(columns);
  FoundRowsLoss result;
  for (int64_t s = 0; s < groups; ++s) {
    const auto target = targets.row(s);
    if (std::ranges::count(target, kIgnored) == columns) continue;
    ++result.count;
    const int32_t begin = offsets[s], rows = offsets[s + 1] - begin;
    for (int64_t c = 0; c < columns; ++c) {
      check(target[c] >= 0 && target[c] < rows, "{}: target {} of a group of {} rows", kOp, target[c], rows);
      const auto at = [&](int64_t r) { return columns * (begin + r) + c; };
      float most = z[at(0)];
      for (int64_t r = 1; r < rows; ++r) most = std::max(most, z[at(r)]);
      double sum = 0;
      for (int64_t r = 0; r < rows; ++r) sum += std::exp(double{z[at(r)]} - most);
      result.total += share * (std::log(sum) + most - z[at(target[c])]);
      for (int64_t r = 0; r < rows; ++r) {
        const auto p = static_cast<float>(std::exp(double{z[at(r)]} - most) / sum);
        dz[at(r)] = static_cast<float>(share) * scale * (p - (r == target[c] ? 1.0F : 0.0F));
      }
    }
  }
  const auto loss = static_cast<float>(result.total * scale);
  result.loss = Tensor::of({1}, std::span(&loss, 1));
  if (wants_grad({&scores}))
    connect(result.loss, std::make_shared<FoundRowsNode>(scores, std::move(gradient)));
  return result;
}

namespace {

class ContrastiveNode : public Node {
 public:
  ContrastiveNode(const Tensor& u, const Tensor& v, Tensor du, Tensor dv)
      : gradients_{std::move(du), std::move(dv)} {
    add_input(u);
    add_input(v);
  }
  std::string_view name() const override { return "contrastive_cross_entropy"; }
  void backward(std::span<Tensor> grads) override {
    const float dy = grads[0].item();
    for (int i = 0; i < 2; ++i) {
      float* g = gradients_[i].mutable_data<float>();
      for (int64_t k = 0; k < gradients_[i].count(); ++k) g[k] *= dy;
      give(i, std::move(gradients_[i]));
    }
  }

 private:
  Tensor gradients_[2];
};

// -log P of the diagonal of z [n, n], by rows (`step` 1 along them) or columns. Adds P, less 1 on the
// diagonal, to dz.
double diagonal_loss(const std::vector<double>& z, int64_t n, int64_t row, int64_t step,
                     std::vector<double>& dz, int64_t* found) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto at = [&](int64_t j) { return i * row + j * step; };
    double most = z[at(0)], sum = 0;
    for (int64_t j = 1; j < n; ++j) most = std::max(most, z[at(j)]);
    for (int64_t j = 0; j < n; ++j) sum += std::exp(z[at(j)] - most);
    total += std::log(sum) + most - z[at(i)];
    for (int64_t j = 0; j < n; ++j) dz[at(j)] += std::exp(z[at(j)] - most) / sum - (i == j ? 1 : 0);
    if (found == nullptr) continue;
    int64_t as_near = 0;  // itself, and ties
    for (int64_t j = 0; j < n; ++j) as_near += z[at(j)] >= z[at(i)];
    *found += as_near == 1;
  }
  return total;
}

}  // namespace

ContrastiveLoss contrastive_cross_entropy(const Tensor& u, const Tensor& v, float temperature, float scale) {
  check(u.defined() && u.shape().rank() == 2 && u.rows() > 0, "contrastive_cross_entropy: expected u [S, D]");
  expect_shape("contrastive_cross_entropy", "v", v, u.shape());
  expect_dtype("contrastive_cross_entropy", "u", u, DType::f32);
  expect_dtype("contrastive_cross_entropy", "v", v, DType::f32);
  check(temperature > 0, "contrastive_cross_entropy: the temperature must be positive, got {}", temperature);
  const int64_t n = u.rows(), width = u.width();
  const float *a = u.data<float>(), *b = v.data<float>();
  std::vector<double> z(n * n), dz(n * n);
  parallel_for(n, 1, [&](int64_t i, int64_t end) {
    for (; i < end; ++i)
      for (int64_t j = 0; j < n; ++j) {
        float dot = 0;
        for (int64_t c = 0; c < width; ++c) dot += a[i * width + c] * b[j * width + c];
        z[i * n + j] = double{dot} / double{temperature};
      }
  });
  ContrastiveLoss result;
  result.total =
      0.5 * (diagonal_loss(z, n, n, 1, dz, &result.found) + diagonal_loss(z, n, 1, n, dz, nullptr));
  const auto loss = static_cast<float>(result.total * double{scale});
  result.loss = Tensor::of({1}, std::span(&loss, 1));
  if (!wants_grad({&u, &v})) return result;
  Tensor du = Tensor::zeros(u.shape(), DType::f32), dv = Tensor::zeros(v.shape(), DType::f32);
  const double factor = 0.5 * double{scale} / double{temperature};
  const auto gather = [&](const float* from, Tensor& to, int64_t row, int64_t step) {
    parallel_for(n, 1, [&](int64_t i, int64_t end) {
      for (; i < end; ++i)
        for (int64_t j = 0; j < n; ++j) {
          const auto w = static_cast<float>(factor * dz[i * row + j * step]);
          for (int64_t c = 0; c < width; ++c)
            to.mutable_data<float>()[i * width + c] += w * from[j * width + c];
        }
    });
  };
  gather(b, du, n, 1);
  gather(a, dv, 1, n);
  connect(result.loss, std::make_shared<ContrastiveNode>(u, v, std::move(du), std::move(dv)));
  return result;
}

}  // namespace qkv
