// A weight of a linear layer or a table, whatever the type in which it is stored.
#pragma once

#include <fmt/core.h>

#include <span>
#include <utility>
#include <vector>

#include "qkv/tensor/quantized.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// A matrix [out, in] that products, look-ups and experts read. It is a dense tensor of f32, f16 or bf16,
// which may need a gradient; or rows of quantised blocks, which cannot; or a stack of either, without a
// gradient, as queries, keys and values are in files that give each a type of its own. Cheap to copy.
class Weight {
 public:
  Weight() = default;
  Weight(Tensor dense) : dense_(std::move(dense)) {}  // NOLINT: a dense tensor is a weight
  Weight(QuantizedTensor blocks);                     // NOLINT: and so are blocks
  // The rows of all parts [out_i, in], in turn. Throws Error if their widths differ or one is undefined.
  static Weight stack(std::vector<Weight> parts);

  bool defined() const { return dense_.defined() || !parts_.empty(); }
  // True unless it is one dense tensor.
  bool is_packed() const { return !parts_.empty(); }
  bool is_quantized() const { return is_packed() && !parts_.front().dense.defined() && parts_.size() == 1; }
  const Shape& shape() const { return is_packed() ? shape_ : dense_.shape(); }
  int64_t dim(int i) const { return shape()[i]; }
  size_t bytes() const;
  // The type, of a stack that of its first part. Throws Error for a dense tensor of integers or f64.
  WeightType type() const;

  // The one dense tensor, or the one tensor of blocks; undefined if it is not that.
  const Tensor& dense() const { return dense_; }
  QuantizedTensor quantized() const { return is_quantized() ? parts_.front().blocks : QuantizedTensor(); }

  // Rows [begin, end) along the first axis.
  Weight slice_rows(int64_t begin, int64_t end) const;
  Weight reshape(Shape shape) const;
  Weight detach() const { return is_packed() ? *this : Weight(dense_.detach()); }

  // Each run of rows of one type, as products read them: as matrices [rows, in]; of a weight [out, in].
  struct Rows {
    int64_t first, count;
    MatrixView view;
  };
  std::vector<Rows> runs() const;

 private:
  struct Part {
    Tensor dense;
    QuantizedTensor blocks;
    const Shape& shape() const { return dense.defined() ? dense.shape() : blocks.shape(); }
  };
  Tensor dense_;
  std::vector<Part> parts_;
  Shape shape_;  // all parts together
};

}  // namespace qkv

// Messages show a weight as its shape, or as "nothing" if it is undefined.
template <>
struct fmt::formatter<qkv::Weight> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  format_context::iterator format(const qkv::Weight& weight, format_context& context) const;
};
