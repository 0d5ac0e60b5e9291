// The SIMD tables, and the sources that fill them: one for each instruction set.
#pragma once

#include <vector>

#include "qkv/kernels/kernels.h"

namespace qkv {

// The tables that this processor can run, slowest first.
const std::vector<KernelTable>& simd_tables();

// Each sets the kernels that it has. Call those only if the processor has the instructions.
void fill_avx2(KernelTable* table);
void fill_avx512(KernelTable* table);
// Attention on tiles, for tables that have AVX-512's kernels.
void fill_tiles(KernelTable* amx, KernelTable* emulated);

}  // namespace qkv
