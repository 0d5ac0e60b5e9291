#include "qkv/ops/parts.h"

#include <numeric>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

// Columns [from_column, from_column + count) of `from` become those of `to` from to_column on.
void copy_columns(const Tensor& from, int64_t from_column, int64_t count, Tensor& to, int64_t to_column) {
  const int64_t size = size_of(from.dtype()), from_bytes = from.width() * size, to_bytes = to.width() * size;
  const auto* source = static_cast<const std::byte*>(from.raw()) + from_column * size;
  auto* target = static_cast<std::byte*>(to.raw()) + to_column * size;
  for (int64_t r = 0; r < to.dim(0); ++r)
    std::memcpy(target + r * to_bytes, source + r * from_bytes, static_cast<size_t>(count * size));
}

void expect_matrix(const char* op, const Tensor& x) {
  check(x.defined() && x.shape().rank() == 2, "{}: expected x [N, C], got {}", op, x);
}

Tensor cut(const Tensor& x, int64_t begin, int64_t end) {
  Tensor out = Tensor::empty({x.dim(0), end - begin}, x.dtype());
  copy_columns(x, begin, end - begin, out, 0);
  return out;
}

class ColumnsNode : public Node {
 public:
  ColumnsNode(const Tensor& x, int64_t begin) : shape_(x.shape()), begin_(begin) { add_input(x); }
  std::string_view name() const override { return "columns_of"; }
  void backward(std::span<Tensor> grads) override {
    Tensor dx = Tensor::zeros(shape_, grads[0].dtype());
    copy_columns(grads[0], 0, grads[0].width(), dx, begin_);
    give(0, std::move(dx));
  }

 private:
  Shape shape_;
  int64_t begin_;
};

class ReshapedNode : public Node {
 public:
  explicit ReshapedNode(const Tensor& x) : shape_(x.shape()) { add_input(x); }
  std::string_view name() const override { return "reshaped"; }
  void backward(std::span<Tensor> grads) override { give(0, grads[0].reshape(shape_)); }

 private:
  Shape shape_;
};

}  // namespace

Tensor reshaped(const Tensor& x, Shape shape) {
  check(x.defined(), "reshaped: the tensor is undefined");
  Tensor out = x.detach().reshape(shape);
  if (wants_grad({&x})) connect(out, std::make_shared<ReshapedNode>(x));
  return out;
}

Tensor columns_of(const Tensor& x, int64_t begin, int64_t end) {
  expect_matrix("columns_of", x);
  check(begin >= 0 && begin <= end && end <= x.width(), "columns_of: columns [{}, {}) of {}", begin, end,
        x.width());
  Tensor out = cut(x, begin, end);
  if (wants_grad({&x})) connect(out, std::make_shared<ColumnsNode>(x, begin));
  return out;
}

namespace {

class JoinColumnsNode : public Node {
 public:
  JoinColumnsNode(const Tensor& x, const Tensor& y) : middle_(x.width()) {
    add_input(x);
    add_input(y);
  }
  std::string_view name() const override { return "join_columns"; }
  void backward(std::span<Tensor> grads) override {
    give(0, cut(grads[0], 0, middle_));
    give(1, cut(grads[0], middle_, grads[0].width()));
  }

 private:
  int64_t middle_;
};

}  // namespace

Tensor join_columns(const Tensor& x, const Tensor& y) {
  expect_matrix("join_columns", x);
  expect_matrix("join_columns", y);
  check(x.dim(0) == y.dim(0), "join_columns: {} and {} have different rows", x.shape(), y.shape());
  expect_dtype("join_columns", "y", y, x.dtype());
  Tensor out = Tensor::empty({x.dim(0), x.width() + y.width()}, x.dtype());
  copy_columns(x, 0, x.width(), out, 0);
  copy_columns(y, 0, y.width(), out, x.width());
  if (wants_grad({&x, &y})) connect(out, std::make_shared<JoinColumnsNode>(x, y));
  return out;
}

namespace {

Tensor stacked(std::span<const Tensor> parts, const Shape& shape, DType type) {
  Tensor out = Tensor::empty(shape, type);
  auto* to = static_cast<std::byte*>(out.raw());
  for (const Tensor& p : parts) {
    std::memcpy(to, p.raw(), p.bytes());
    to += p.bytes();
  }
  return out;
}

class SplitRowsNode : public Node {
 public:
  SplitRowsNode(const Tensor& x, std::span<const int64_t> counts)
      : shape_(x.shape()), type_(x.dtype()), counts_(counts.begin(), counts.end()) {
    add_input(x);
  }
  std::string_view name() const override { return "split_rows"; }
  void backward(std::span<Tensor> grads) override {
    std::vector<Tensor> parts(grads.begin(), grads.end());
    parts.resize(counts_.size());
    for (size_t i = 0; i < parts.size(); ++i)
      if (!parts[i].defined()) parts[i] = Tensor::zeros({counts_[i], shape_[1]}, type_);
    give(0, stacked(parts, shape_, type_));
  }

 private:
  Shape shape_;
  DType type_;
  std::vector<int64_t> counts_;
};

}  // namespace

std::vector<Tensor> split_rows(const Tensor& x, std::span<const int64_t> counts) {
  expect_matrix("split_rows", x);
  check(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == x.dim(0),
        "split_rows: the parts do not make {} rows", x.dim(0));
  const auto node = wants_grad({&x}) ? std::make_shared<SplitRowsNode>(x, counts) : nullptr;
  std::vector<Tensor> parts;
  int64_t row = 0;
  for (const int64_t count : counts) {
    check(count >= 0, "split_rows: a part of {} rows", count);
    parts.push_back(x.slice_rows(row, row + count).clone());
    if (node) connect(parts.back(), node, static_cast<int>(parts.size()) - 1);
    row += count;
  }
  return parts;
}

namespace {

class JoinRowsNode : public Node {
 public:
  explicit JoinRowsNode(const std::vector<Tensor>& parts) {
    for (const Tensor& p : parts) {
      add_input(p);
      counts_.push_back(p.dim(0));
    }
  }
  std::string_view name() const override { return "join_rows"; }
  void backward(std::span<Tensor> grads) override {
    const std::vector<Tensor> parts = split_rows(grads[0], counts_);
    for (size_t i = 0; i < parts.size(); ++i) give(static_cast<int>(i), parts[i]);
  }

 private:
  std::vector<int64_t> counts_;
};

}  // namespace

Tensor join_rows(const std::vector<Tensor>& parts) {
  check(!parts.empty(), "join_rows: there is nothing to join");
  int64_t rows = 0;
  bool wanted = false;
  for (const Tensor& p : parts) {
    expect_matrix("join_rows", p);
    check(p.width() == parts[0].width(), "join_rows: {} does not fit {}", p.shape(), parts[0].shape());
    expect_dtype("join_rows", "a part", p, parts[0].dtype());
    rows += p.dim(0);
    wanted = wanted || wants_grad({&p});
  }
  Tensor out = stacked(parts, {rows, parts[0].width()}, parts[0].dtype());
  if (wanted) connect(out, std::make_shared<JoinRowsNode>(parts));
  return out;
}

}  // namespace qkv
