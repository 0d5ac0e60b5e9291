// The SIMD kernels for AVX-512, and for tiles.
#include "qkv/kernels/cpu/tables.h"

// Highway includes this file once for its target, and once for the baseline, for which it has nothing.
#define HWY_DISABLED_TARGETS (~(HWY_AVX3 | HWY_SCALAR))
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qkv/kernels/cpu/simd_avx512.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#if HWY_TARGET == HWY_AVX3
#include "qkv/kernels/cpu/table-inl.h"

namespace qkv {

void fill_avx512(KernelTable* table) {
  HWY_NAMESPACE::fill_table(table);
}

void fill_tiles(KernelTable* amx, KernelTable* emulated) {
  using HWY_NAMESPACE::attention_grad_on_tiles;
  using HWY_NAMESPACE::attention_on_tiles;
  amx->bf16.attention = attention_on_tiles<TileUnit::amx>;
  amx->bf16.attention_grad = attention_grad_on_tiles<TileUnit::amx>;
  emulated->bf16.attention = attention_on_tiles<TileUnit::emulated>;
  emulated->bf16.attention_grad = attention_grad_on_tiles<TileUnit::emulated>;
}

}  // namespace qkv
#endif
