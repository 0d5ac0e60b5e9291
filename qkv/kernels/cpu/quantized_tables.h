// The sources of products by quantised weights: one for each instruction set.
#pragma once

#include "qkv/kernels/quantized_kernels.h"

namespace qkv {

// Each sets the kernels that it has. Call those only if the processor has the instructions.
void fill_quantized_avx2(QuantizedKernels* table);
void fill_quantized_avx512(PanelUnit unit, QuantizedKernels* table);

}  // namespace qkv
