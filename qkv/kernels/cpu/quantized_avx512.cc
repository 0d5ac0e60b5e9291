// Products by quantised weights for AVX-512, VNNI and tiles.
#include "qkv/kernels/cpu/quantized_tables.h"

// Highway includes this file once for its target, and once for the baseline, for which it has nothing.
#define HWY_DISABLED_TARGETS (~(HWY_AVX3 | HWY_SCALAR))
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qkv/kernels/cpu/quantized_avx512.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#if HWY_TARGET == HWY_AVX3
#include "qkv/kernels/cpu/quantized-inl.h"

namespace qkv {

void fill_quantized_avx512(PanelUnit unit, QuantizedKernels* table) {
  using namespace HWY_NAMESPACE;
  using enum PanelUnit;
  *table = {table->name, quantize, unit == vectors ? dots<false> : dots<true>,
            unit == vectors ? panel<vectors>
            : unit == vnni  ? panel<vnni>
            : unit == amx   ? panel<amx>
                            : panel<emulated_tiles>};
}

}  // namespace qkv
#endif
