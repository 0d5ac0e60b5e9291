// The choice among the SIMD kernels of each instruction set. Processors with neither AVX2 nor AVX-512 use the
// generic loops.
#include <vector>

#include "hwy/targets.h"
#include "qkv/kernels/cpu/tables.h"
#include "qkv/kernels/kernels.h"
#include "qkv/kernels/tile_product.h"

namespace qkv {
namespace {

struct Tables {
  std::vector<KernelTable> simd;
  KernelTable amx, emulated_tiles;
};

const Tables& tables() {
  static const Tables tables = [] {
    Tables t;
    std::vector<KernelTable>& found = t.simd;
    const auto add = [&](int64_t target, const char* name, void (*fill)(KernelTable*)) {
      if ((hwy::SupportedTargets() & target) == 0) return;
      KernelTable table = generic_kernels();
      table.name = name;
      fill(&table);
      found.push_back(table);
    };
    t.amx = t.emulated_tiles = generic_kernels();
#if HWY_ARCH_X86
    add(HWY_AVX2, "avx2", fill_avx2);
    add(HWY_AVX3, "avx512", fill_avx512);
    if (!found.empty()) t.amx = t.emulated_tiles = found.back();
    if (tiles_available(TileUnit::emulated)) fill_tiles(&t.amx, &t.emulated_tiles);
#else
    (void)add;
#endif
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
