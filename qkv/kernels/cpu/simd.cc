// The SIMD kernels, compiled for each instruction set by Highway, and the choice among them.
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

// The targets are AVX2 with FMA, and AVX-512; other processors use the generic loops. SVE is disabled: its
// vectors cannot be members.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qkv/kernels/cpu/simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Highway asks for this order.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "qkv/kernels/cpu/attention-inl.h"
#include "qkv/kernels/cpu/attention_tiles-inl.h"
#include "qkv/kernels/cpu/elementwise-inl.h"
#include "qkv/kernels/cpu/fast_weights-inl.h"
#include "qkv/kernels/cpu/product-inl.h"
#include "qkv/kernels/cpu/row_product-inl.h"
#include "qkv/kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR  // Highway's baseline without AVX2: the generic loops serve there
void fill_table(KernelTable*) {}
#else
template <typename T>
TypedKernels<T> typed_kernels() {
  return {to_f32<T>,        from_f32<T>,        add<T>,           dropout<T>,
          activation<T>,    activation_grad<T>, residual_norm<T>, residual_norm_grad<T>,
          cross_entropy<T>, column_sums<T>,     scatter_add<T>,   row_product<T>,
          attention<T>,     attention<T>,       attention_grad<T>};
}

void fill_table(KernelTable* table) {
  table->f32 = typed_kernels<float>();
  table->bf16 = typed_kernels<BFloat16>();
  table->row_product_f16 = row_product<Float16>;
  table->sum_squares = sum_squares;
  table->log_sum_exp = log_sum_exp;
  table->exp = exponentials;
  table->scale = scale;
  table->axpy = axpy;
  table->update = update;
  table->fast_weights = fast_weights;
  table->fast_weights_grad = fast_weights_grad;
  table->product = product;
  table->product_scratch = product_scratch;
}
#endif

void fill_tile_tables(KernelTable* amx, KernelTable* emulated) {
#if HWY_TARGET == HWY_AVX3
  amx->bf16.attention = attention_on_tiles<TileUnit::amx>;
  amx->bf16.attention_grad = attention_grad_on_tiles<TileUnit::amx>;
  emulated->bf16.attention = attention_on_tiles<TileUnit::emulated>;
  emulated->bf16.attention_grad = attention_grad_on_tiles<TileUnit::emulated>;
#else  // never called: tiles_available() needs AVX-512
  (void)amx, (void)emulated;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv {

HWY_EXPORT(fill_table);
HWY_EXPORT(fill_tile_tables);

namespace {

struct Tables {
  std::vector<KernelTable> simd;
  KernelTable amx, emulated_tiles;
};

const Tables& tables() {
  static const Tables tables = [] {
    Tables t;
    std::vector<KernelTable>& found = t.simd;
    for (const auto& [target, name] :
         {std::pair<int64_t, const char*>{HWY_AVX2, "avx2"}, {HWY_AVX3, "avx512"}}) {
      hwy::SetSupportedTargetsForTest(0);  // resets to the processor's own targets
      if ((hwy::SupportedTargets() & target) == 0) continue;
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      KernelTable table = generic_kernels();
      table.name = name;
      HWY_DYNAMIC_DISPATCH(fill_table)(&table);
      found.push_back(table);
    }
    t.amx = t.emulated_tiles = found.empty() ? generic_kernels() : found.back();
    if (tiles_available(TileUnit::emulated))
      HWY_DYNAMIC_DISPATCH(fill_tile_tables)(&t.amx, &t.emulated_tiles);
    hwy::SetSupportedTargetsForTest(0);
    t.amx.name = "amx";
    t.emulated_tiles.name = "emulated tiles";
    if (tiles_available(TileUnit::amx)) found.push_back(t.amx);
    return t;
  }();
  return tables;
}

}  // namespace

const std::vector<KernelTable>& simd_tables() {
  return tables().simd;
}

const KernelTable* tile_kernels(TileUnit unit) {
  if (!tiles_available(unit)) return nullptr;
  return unit == TileUnit::amx ? &tables().amx : &tables().emulated_tiles;
}

}  // namespace qkv
#endif
