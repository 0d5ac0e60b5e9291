// The SIMD kernels of products by quantised weights, compiled for each instruction set, and the choice among
// them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
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

void fill_quantized(bool vnni, QuantizedKernels* table) {
#if HWY_TARGET == HWY_AVX3
  *table = {table->name, quantize, vnni ? dots<true> : dots<false>, vnni ? panel<true> : panel<false>};
#elif HWY_TARGET == HWY_AVX2
  *table = {table->name, quantize, dots<false>, panel<false>};
#else  // the generic loops serve
  (void)vnni, (void)table;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv {

HWY_EXPORT(fill_quantized);

namespace {

bool has_vnni() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512vnni") != 0;
#else
  return false;
#endif
}

// The generic table, then one for each instruction set of this processor that has code of its own.
const std::vector<QuantizedKernels>& tables() {
  static const std::vector<QuantizedKernels> tables = [] {
    std::vector<QuantizedKernels> all = {generic_quantized_kernels()};
    hwy::SetSupportedTargetsForTest(0);  // resets to the processor's own targets
    const int64_t supported = hwy::SupportedTargets();
    for (const auto& [target, name] : {std::pair<int64_t, std::string_view>{HWY_AVX2, "avx2"},
                                       {HWY_AVX3, "avx512"},
                                       {HWY_AVX3, "avx512 vnni"}}) {
      const bool vnni = name == "avx512 vnni";
      if ((supported & target) == 0 || (vnni && !has_vnni())) continue;
      QuantizedKernels table = generic_quantized_kernels();
      table.name = name;
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      HWY_DYNAMIC_DISPATCH(fill_quantized)(vnni, &table);
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
    if (kernels().name == "avx512" || kernels().name == "amx") return tables().back();
    for (const QuantizedKernels& table : tables())
      if (table.name == kernels().name) return table;
    return tables().front();
  }();
  return chosen;
}

}  // namespace qkv
#endif
