// The SIMD tables that this processor can run, slowest first.
#pragma once

#include <vector>

#include "qkv/kernels/kernels.h"

namespace qkv {
const std::vector<KernelTable>& simd_tables();
}  // namespace qkv
