// How the numbers of a weight are stored: one by one, or in blocks that share scales.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "qkv/tensor/dtype.h"

namespace qkv {

// The storage type of a weight [out, in]. Blocks are of neighbours along `in`; their formats are those of
// GGUF files (quant/blocks.h has them field by field).
enum class WeightType : uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
};
inline constexpr int kWeightTypes = static_cast<int>(WeightType::mxfp4) + 1;

// The numbers of one block, and the bytes that they take together.
struct BlockLayout {
  std::string_view name;
  int64_t elements, bytes;
};

inline constexpr BlockLayout kBlockLayouts[kWeightTypes] = {
    {"f32", 1, 4},      {"f16", 1, 2},      {"bf16", 1, 2},       {"q4_0", 32, 18},
    {"q4_1", 32, 20},   {"q5_0", 32, 22},   {"q5_1", 32, 24},     {"q8_0", 32, 34},
    {"q2_k", 256, 84},  {"q3_k", 256, 110}, {"q4_k", 256, 144},   {"q5_k", 256, 176},
    {"q6_k", 256, 210}, {"iq4_nl", 32, 18}, {"iq4_xs", 256, 136}, {"mxfp4", 32, 17},
};
constexpr const BlockLayout& layout_of(WeightType type) {
  return kBlockLayouts[static_cast<int>(type)];
}

// "f32", "q4_k", ...
constexpr std::string_view name_of(WeightType type) {
  return layout_of(type).name;
}

// True if several numbers share a scale.
constexpr bool is_quantized(WeightType type) {
  return layout_of(type).elements > 1;
}

// The type of a dense tensor's elements as a weight; nothing for integers and f64.
constexpr std::optional<WeightType> weight_type(DType type) {
  switch (type) {
    case DType::f32:
      return WeightType::f32;
    case DType::f16:
      return WeightType::f16;
    case DType::bf16:
      return WeightType::bf16;
    default:
      return std::nullopt;
  }
}

// A matrix in memory as products read it.
struct MatrixView {
  const void* data = nullptr;
  WeightType type = WeightType::f32;
  int64_t stride = 0;       // elements between stored rows
  bool transposed = false;  // the stored rows are the matrix's columns

  // The matrix from a stored row and a column of it on, which begins a block.
  MatrixView from(int64_t row, int64_t column) const {
    const BlockLayout& layout = layout_of(type);
    MatrixView view = *this;
    view.data = static_cast<const char*>(data) + row * row_bytes() + column / layout.elements * layout.bytes;
    return view;
  }
  // Bytes between stored rows.
  int64_t row_bytes() const {
    const BlockLayout& layout = layout_of(type);
    return stride / layout.elements * layout.bytes;
  }
};

// A view of f32 or bf16 numbers. REQUIRES: the type is a weight's.
constexpr MatrixView dense(const void* data, DType type, int64_t stride, bool transposed = false) {
  return {data, *weight_type(type), stride, transposed};
}

}  // namespace qkv
