// The SIMD kernels for AVX-512, and for tiles.
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
#define HWY_DISABLED_TARGETS (~(HWY_AVX3 | HWY_SCALAR))
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qkv/kernels/cpu/simd_avx512.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#if HWY_TARGET == HWY_AVX3
#include "qkv/kernels/cpu/table-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

void fill_tile_tables(KernelTable* amx, KernelTable* emulated) {
  amx->bf16.attention = attention_on_tiles<TileUnit::amx>;
  amx->bf16.attention_grad = attention_grad_on_tiles<TileUnit::amx>;
  emulated->bf16.attention = attention_on_tiles<TileUnit::emulated>;
  emulated->bf16.attention_grad = attention_grad_on_tiles<TileUnit::emulated>;
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace qkv {

void fill_avx512(KernelTable* table) {
#if HWY_ARCH_X86
  N_AVX3::fill_table(table);
#else
  (void)table;
#endif
}

void fill_tiles(KernelTable* amx, KernelTable* emulated) {
#if HWY_ARCH_X86
  N_AVX3::fill_tile_tables(amx, emulated);
#else
  (void)amx, (void)emulated;
#endif
}

}  // namespace qkv
#endif
