// The SIMD kernels of products by quantised weights, compiled for each instruction set, and the choice among
// them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "qkv/kernels/kernels.h"
#include "qkv/kernels/quantized_kernels.h"
#include "qkv/quant/block_integers.h"
#include "qkv/quant/blocks.h"

// As in simd.cc.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qkv/kernels/cpu/quantized.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Highway asks for this order.
#include "hwy/highway.h"
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#include "qkv/kernels/cpu/quantized-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

void fill_quantized(QuantizedKernels* table) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3  // elsewhere the generic loops serve
  *table = {table->name, quantize, dots, panel};
#else
  (void)table;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv {

HWY_EXPORT(fill_quantized);

namespace {

// One table for each of kernels()'s, of the same name; "amx" has AVX-512's code.
const std::vector<QuantizedKernels>& tables() {
  static const std::vector<QuantizedKernels> tables = [] {
    std::vector<QuantizedKernels> all = {generic_quantized_kernels()};
    for (int i = 1; i < kernel_table_count(); ++i) {
      QuantizedKernels table = generic_quantized_kernels();
      table.name = kernel_table(i).name;
      hwy::SetSupportedTargetsForTest(0);  // resets to the processor's own targets
      hwy::SetSupportedTargetsForTest(table.name == "avx2" ? HWY_AVX2 : HWY_AVX3);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      HWY_DYNAMIC_DISPATCH(fill_quantized)(&table);
      all.push_back(table);
    }
    hwy::SetSupportedTargetsForTest(0);
    return all;
  }();
  return tables;
}

}  // namespace

int quantized_kernels_count() {
  return static_cast<int>(tables().size());
}
const QuantizedKernels& quantized_kernels(int i) {
  return tables().at(i);
}

const QuantizedKernels& quantized_kernels() {
  static const QuantizedKernels& chosen = [&]() -> const QuantizedKernels& {
    for (const QuantizedKernels& table : tables())
      if (table.name == kernels().name) return table;
    return tables().front();
  }();
  return chosen;
}

}  // namespace qkv
#endif
