#include "qkv/tensor/weight.h"

#include <fmt/core.h>

#include <algorithm>

namespace qkv {
namespace {

WeightType type_of(const Tensor& dense) {
  const auto type = weight_type(dense.dtype());
  check(type.has_value(), "weight: expected floating-point numbers, got {}", name_of(dense.dtype()));
  return *type;
}

}  // namespace

Weight::Weight(QuantizedTensor blocks) : shape_(blocks.shape()) {
  if (blocks.defined()) parts_.push_back({{}, std::move(blocks)});
}

Weight Weight::stack(std::vector<Weight> parts) {
  Weight out;
  int64_t rows = 0;
  for (Weight& w : parts) {
    check(w.defined() && w.shape().rank() == 2 && w.dim(1) == parts.front().dim(1),
          "weight: a stack of {} and {}", parts.front(), w);
    rows += w.dim(0);
    if (w.is_packed())
      out.parts_.insert(out.parts_.end(), w.parts_.begin(), w.parts_.end());
    else
      out.parts_.push_back({w.dense_.detach(), {}});
  }
  if (!parts.empty()) out.shape_ = {rows, parts.front().dim(1)};
  return out;
}

size_t Weight::bytes() const {
  if (!is_packed()) return dense_.defined() ? dense_.bytes() : 0;
  size_t sum = 0;
  for (const Part& p : parts_) sum += p.dense.defined() ? p.dense.bytes() : p.blocks.bytes();
  return sum;
}

WeightType Weight::type() const {
  check(defined(), "weight: it is undefined");
  const Tensor& dense = is_packed() ? parts_.front().dense : dense_;
  return dense.defined() ? type_of(dense) : parts_.front().blocks.type();
}

Weight Weight::slice_rows(int64_t begin, int64_t end) const {
  if (!is_packed()) return dense_.slice_rows(begin, end);
  if (is_quantized()) return parts_.front().blocks.slice_rows(begin, end);
  check(0 <= begin && begin <= end && end <= dim(0), "slice_rows: [{}, {}) of {}", begin, end, shape());
  std::vector<Weight> within;
  int64_t first = 0;
  for (const Part& p : parts_) {
    const int64_t rows = p.shape()[0], from = std::clamp(begin - first, int64_t{0}, rows),
                  to = std::clamp(end - first, int64_t{0}, rows);
    if (from < to)
      within.push_back(p.dense.defined() ? Weight(p.dense.slice_rows(from, to))
                                         : Weight(p.blocks.slice_rows(from, to)));
    first += rows;
  }
  return stack(std::move(within));
}

Weight Weight::reshape(Shape shape) const {
  if (!is_packed()) return dense_.reshape(shape);
  check(is_quantized(), "reshape: of a stack of weights");
  return parts_.front().blocks.reshape(shape);
}

std::vector<Weight::Rows> Weight::runs() const {
  check(defined() && shape().rank() == 2, "weight: expected [out, in], got {}", *this);
  const int64_t in = dim(1);
  if (!is_packed()) return {{0, dim(0), {dense_.raw(), type_of(dense_), in}}};
  std::vector<Rows> runs;
  int64_t first = 0;
  for (const Part& p : parts_) {
    const MatrixView view = p.dense.defined() ? MatrixView{p.dense.raw(), type_of(p.dense), in}
                                              : MatrixView{p.blocks.raw(), p.blocks.type(), in};
    runs.push_back({first, p.shape()[0], view});
    first += p.shape()[0];
  }
  return runs;
}

}  // namespace qkv

fmt::format_context::iterator fmt::formatter<qkv::Weight>::format(const qkv::Weight& weight,
                                                                  format_context& context) const {
  return fmt::format_to(context.out(), "{}", weight.defined() ? weight.shape().text() : "nothing");
}
