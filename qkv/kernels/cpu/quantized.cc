// The choice among the SIMD kernels of products by quantised weights.
#include <string_view>
#include <vector>

#include "hwy/targets.h"
#include "qkv/kernels/cpu/quantized_tables.h"
#include "qkv/kernels/kernels.h"
#include "qkv/kernels/quantized_kernels.h"
#include "qkv/kernels/tile_product.h"

namespace qkv {
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
const std::vector<QuantizedKernels>& quantized_tables() {
  static const std::vector<QuantizedKernels> quantized = [] {
    std::vector<QuantizedKernels> all = {generic_quantized_kernels()};
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
#if HWY_ARCH_X86
      if (target == HWY_AVX2)
        fill_quantized_avx2(&table);
      else
        fill_quantized_avx512(unit, &table);
#endif
      all.push_back(table);
    }
    return all;
  }();
  return quantized;
}

}  // namespace

int quantized_kernels_count() {
  return static_cast<int>(quantized_tables().size());
}
const QuantizedKernels& quantized_kernels(int i) {
  return quantized_tables().at(i);
}

const QuantizedKernels& quantized_kernels() {
  static const QuantizedKernels& chosen = [&]() -> const QuantizedKernels& {
    // The best that kernels(), and so QKV_MAX_ISA, allows.
    const std::string_view isa = kernels().name;
    for (size_t i = quantized_tables().size(); i-- > 0;) {
      const std::string_view name = quantized_tables()[i].name;
      if (name == isa || (name == "avx512 vnni" && (isa == "avx512" || isa == "amx")) ||
          (name == "avx512" && isa == "amx"))
        return quantized_tables()[i];
    }
    return quantized_tables().front();
  }();
  return chosen;
}

}  // namespace qkv
