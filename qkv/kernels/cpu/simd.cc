// The SIMD kernels, compiled for each instruction set by Highway, and the choice among them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "qkv/kernels/cpu/tables.h"
#include "qkv/kernels/kernels.h"

// AVX2 with FMA, and AVX-512; the generic loops serve what has neither.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qkv/kernels/cpu/simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Highway asks for this order.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "qkv/kernels/cpu/attention-inl.h"
#include "qkv/kernels/cpu/elementwise-inl.h"
#include "qkv/kernels/cpu/product-inl.h"
#include "qkv/kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

template <typename T>
TypedKernels<T> typed_kernels() {
  return {to_f32<T>,        from_f32<T>,        add<T>,           dropout<T>,
          activation<T>,    activation_grad<T>, residual_norm<T>, residual_norm_grad<T>,
          cross_entropy<T>, column_sums<T>,     scatter_add<T>,   thin_product<T>,
          attention<T>,     attention_grad<T>};
}

void fill_table(KernelTable* table) {
  table->f32 = typed_kernels<float>();
  table->bf16 = typed_kernels<BFloat16>();
  table->sum_squares = sum_squares;
  table->scale = scale;
  table->axpy = axpy;
  table->update = update;
  table->product = product;
  table->product_scratch = product_scratch;
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv {

HWY_EXPORT(fill_table);

const std::vector<KernelTable>& simd_tables() {
  static const std::vector<KernelTable> tables = [] {
    std::vector<KernelTable> found;
    for (const auto& [target, name] :
         {std::pair<int64_t, const char*>{HWY_AVX2, "avx2"}, {HWY_AVX3, "avx512"}}) {
      hwy::SetSupportedTargetsForTest(0);  // what the processor has
      if ((hwy::SupportedTargets() & target) == 0) continue;
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      KernelTable table = generic_kernels();
      table.name = name;
      HWY_DYNAMIC_DISPATCH(fill_table)(&table);
      found.push_back(table);
    }
    hwy::SetSupportedTargetsForTest(0);
    return found;
  }();
  return tables;
}

}  // namespace qkv
#endif
