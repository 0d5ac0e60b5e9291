// Products by quantised weights for AVX2.
#include "qkv/kernels/cpu/quantized_tables.h"

// Highway includes this file once for its target, and once for the baseline, for which it has nothing.
#define HWY_DISABLED_TARGETS (~(HWY_AVX2 | HWY_SCALAR))
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qkv/kernels/cpu/quantized_avx2.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#if HWY_TARGET == HWY_AVX2
#include "qkv/kernels/cpu/quantized-inl.h"

namespace qkv {

void fill_quantized_avx2(QuantizedKernels* table) {
  using namespace HWY_NAMESPACE;
  *table = {table->name, quantize, dots<false>, panel<PanelUnit::vectors>};
}

}  // namespace qkv
#endif
