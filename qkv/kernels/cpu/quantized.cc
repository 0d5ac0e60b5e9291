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
#include "qkv/kernels/tile/block.h"
#include "qkv/kernels/tile/groups.h"
#include "qkv/kernels/tile_product.h"
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

void fill_quantized(PanelUnit unit, QuantizedKernels* table) {
#if HWY_TARGET == HWY_AVX3
  using enum PanelUnit;
  *table = {table->name, quantize, unit == vectors ? dots<false> : dots<true>,
            unit == vectors ? panel<vectors>
            : unit == vnni  ? panel<vnni>
            : unit == amx   ? panel<amx>
                            : panel<emulated_tiles>};
#elif HWY_TARGET == HWY_AVX2
  (void)unit;
  *table = {table->name, quantize, dots<false>, panel<PanelUnit::vectors>};
#else  // the generic loops serve
  (void)unit, (void)table;
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

bool has(PanelUnit unit) {
  if (unit == PanelUnit::vectors) return true;
  if (!has_vnni()) return false;
  return !on_tiles(unit) || byte_tiles_available(unit == PanelUnit::amx ? TileUnit::amx : TileUnit::emulated);
}

struct Choice {
  int64_t target;
  PanelUnit unit;
  std::string_view name;
};

// The generic table, then one for each instruction set of this processor that has code of its own.
const std::vector<QuantizedKernels>& tables() {
  static const std::vector<QuantizedKernels> tables = [] {
    std::vector<QuantizedKernels> all = {generic_quantized_kernels()};
    hwy::SetSupportedTargetsForTest(0);  // resets to the processor's own targets
    const int64_t supported = hwy::SupportedTargets();
    using enum PanelUnit;
    for (const auto& [target, unit, name] : {Choice{HWY_AVX2, vectors, "avx2"},
                                             {HWY_AVX3, vectors, "avx512"},
                                             {HWY_AVX3, vnni, "avx512 vnni"},
                                             {HWY_AVX3, amx, "amx"},
                                             {HWY_AVX3, emulated_tiles, "emulated tiles"}}) {
      if ((supported & target) == 0 || !has(unit)) continue;
      QuantizedKernels table = generic_quantized_kernels();
      table.name = name;
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      HWY_DYNAMIC_DISPATCH(fill_quantized)(unit, &table);
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
    // The best that kernels(), and so QKV_MAX_ISA, allows.
    const std::string_view isa = kernels().name;
    for (size_t i = tables().size(); i-- > 0;) {
      const std::string_view name = tables()[i].name;
      if (name == isa || (name == "avx512 vnni" && (isa == "avx512" || isa == "amx")) ||
          (name == "avx512" && isa == "amx"))
        return tables()[i];
    }
    return tables().front();
  }();
  return chosen;
}

}  // namespace qkv
#endif
