// The SIMD kernels of products by quantised weights for AVX-512, VNNI and tiles.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/kernels/cpu/quantized_tables.h"
#include "qkv/kernels/kernels.h"
#include "qkv/kernels/quantized_kernels.h"
#include "qkv/kernels/tile/block.h"
#include "qkv/kernels/tile/groups.h"
#include "qkv/kernels/tile_product.h"
#include "qkv/quant/block_integers.h"
#include "qkv/quant/blocks.h"

// Highway includes this file once for each target that is not disabled.
#define HWY_DISABLED_TARGETS (~(HWY_AVX3 | HWY_SCALAR))
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qkv/kernels/cpu/quantized_avx512.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Highway asks for this order.
#include "hwy/highway.h"
#if HWY_TARGET == HWY_AVX3
#include "qkv/kernels/cpu/quantized-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

void fill(PanelUnit unit, QuantizedKernels* table) {
  using enum PanelUnit;
  *table = {table->name, quantize, unit == vectors ? dots<false> : dots<true>,
            unit == vectors ? panel<vectors>
            : unit == vnni  ? panel<vnni>
            : unit == amx   ? panel<amx>
                            : panel<emulated_tiles>};
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace qkv {

void fill_quantized_avx512(PanelUnit unit, QuantizedKernels* table) {
#if HWY_ARCH_X86
  N_AVX3::fill(unit, table);
#else
  (void)unit, (void)table;
#endif
}

}  // namespace qkv
#endif
