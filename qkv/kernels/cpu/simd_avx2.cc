// The SIMD kernels for AVX2 with FMA.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "qkv/kernels/cpu/tables.h"
#include "qkv/kernels/kernels.h"
#include "qkv/kernels/scratch.h"
#include "qkv/kernels/tile_product.h"

// Highway includes this file once for each target that is not disabled.
#define HWY_DISABLED_TARGETS (~(HWY_AVX2 | HWY_SCALAR))
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qkv/kernels/cpu/simd_avx2.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#if HWY_TARGET == HWY_AVX2
#include "qkv/kernels/cpu/table-inl.h"
#endif

#if HWY_ONCE
namespace qkv {

void fill_avx2(KernelTable* table) {
#if HWY_ARCH_X86
  N_AVX2::fill_table(table);
#else
  (void)table;
#endif
}

}  // namespace qkv
#endif
