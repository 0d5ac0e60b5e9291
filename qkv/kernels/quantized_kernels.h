// The arithmetic of products by quantised weights (quantized_product.h) on the calling thread, for each
// instruction set. All give the same bits.
#pragma once

#include <cstdint>
#include <string_view>

#include "qkv/tensor/weight_type.h"

namespace qkv {

// Blocks of activations whose magnitudes are all smaller become 0.
inline constexpr float kLeastActivation = 0x1p-100F;

// Rows of activations in 8 bits: element l of row r is e[r, l / block] x[r, l].
struct QuantizedRows {
  int64_t rows, k, block;
  int64_t stride;       // elements between rows of x and of bytes
  const int16_t* x;     // [rows, k] in [-127, 127]
  const int8_t* bytes;  // the same in bytes
  const float* e;       // [rows, k / block]
  const int16_t* sums;  // [rows, k / kMinimumGroup]: sums of x
};

// Columns of C that quantized_panel computes at most.
inline constexpr int64_t kPanelColumns = 64;

// The unit that sums the products of a panel. The emulated tiles are for tests; all but `vectors` have VNNI,
// too.
enum class PanelUnit { vectors, vnni, amx, emulated_tiles };
constexpr bool on_tiles(PanelUnit unit) {
  return unit == PanelUnit::amx || unit == PanelUnit::emulated_tiles;
}

struct QuantizedKernels {
  std::string_view name;  // "generic", "avx2", "avx512", "avx512 vnni", "amx", "emulated tiles"
  // Quantises a row of k activations. Block by block: e = max |x| / 127 and q = x / e, to nearest, ties to
  // even. A block with an infinity or a NaN gives e = NaN.
  void (*quantize)(int64_t k, int64_t block, const float* x, int16_t* q, int8_t* bytes, float* e,
                   int16_t* sums);
  // y[j] for the rows j < count of B, and one row of A.
  void (*dots)(const QuantizedRows& a, int64_t row, const MatrixView& b, int64_t count, float* y);
  // y[r * y_stride + j] for all rows of A and the rows j < count <= kPanelColumns of B.
  void (*panel)(const QuantizedRows& a, const MatrixView& b, int64_t count, float* y, int64_t y_stride);
};

// The best that the processor has and max_isa() allows.
const QuantizedKernels& quantized_kernels();
// Every table that this processor can run, the generic one first, emulated tiles last (for tests).
int quantized_kernels_count();
const QuantizedKernels& quantized_kernels(int i);

// The plain loops.
const QuantizedKernels& generic_quantized_kernels();

}  // namespace qkv
