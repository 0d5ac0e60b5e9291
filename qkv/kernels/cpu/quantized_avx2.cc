// The SIMD kernels of products by quantised weights for AVX2.
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
#define HWY_DISABLED_TARGETS (~(HWY_AVX2 | HWY_SCALAR))
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qkv/kernels/cpu/quantized_avx2.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Highway asks for this order.
#include "hwy/highway.h"
#if HWY_TARGET == HWY_AVX2
#include "qkv/kernels/cpu/quantized-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

void fill(QuantizedKernels* table) {
  *table = {table->name, quantize, dots<false>, panel<PanelUnit::vectors>};
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace qkv {

void fill_quantized_avx2(QuantizedKernels* table) {
#if HWY_ARCH_X86
  N_AVX2::fill(table);
#else
  (void)table;
#endif
}

}  // namespace qkv
#endif
