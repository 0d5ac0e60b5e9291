// The SIMD kernels for AVX2 with FMA.
#include "qkv/kernels/cpu/tables.h"

// Highway includes this file once for its target, and once for the baseline, for which it has nothing.
#define HWY_DISABLED_TARGETS (~(HWY_AVX2 | HWY_SCALAR))
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qkv/kernels/cpu/simd_avx2.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#if HWY_TARGET == HWY_AVX2
#include "qkv/kernels/cpu/table-inl.h"

namespace qkv {

void fill_avx2(KernelTable* table) {
  HWY_NAMESPACE::fill_table(table);
}

}  // namespace qkv
#endif
