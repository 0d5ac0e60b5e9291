#include "qkv/kernels/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "qkv/base/error.h"
#include "qkv/kernels/cpu/tables.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace qkv {
namespace {

// The width to which attention's kernels pad a head at most: vectors to multiples of 16, tiles of 32.
int64_t tile_padded(int64_t n) {
  return (n + 31) / 32 * 32;
}
// Lanes, i.e. pairs of a query and a head of the group, that the kernels process at a time.
constexpr int64_t kLanes = 64;

std::optional<Isa> isa_named(std::string_view name) {
  constexpr std::string_view kNames[] = {"generic", "avx2", "avx512", "amx"};
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<Isa>(i);
  return std::nullopt;
}

const KernelTable& choose() {
  int best = 0;
  for (int i = 1; i < kernel_table_count(); ++i)
    if (isa_named(kernel_table(i).name) <= max_isa()) best = i;
  return kernel_table(best);
}

}  // namespace

Isa max_isa() {
  const char* cap = std::getenv("QKV_MAX_ISA");
  if (cap == nullptr || *cap == '\0') return Isa::amx;
  const std::optional<Isa> isa = isa_named(cap);
  check(isa.has_value(), "QKV_MAX_ISA: expected generic, avx2, avx512 or amx, got '{}'", cap);
  return *isa;
}

template <typename T>
int64_t attention_scratch(const Attention<T>& a) {
  const int64_t qk = tile_padded(a.d_qk), vo = tile_padded(a.d_vo);
  const int64_t vectors = (qk + vo) * 2 * kLanes + kKeyTile * kLanes;
  const int64_t tiles = (qk + vo) * kKeyTile + 3 * kKeyTile / 2 * kLanes + 4 * kLanes * (qk / 2 + vo);
  return std::max(vectors, tiles);
}
template int64_t attention_scratch(const Attention<float>&);
template int64_t attention_scratch(const Attention<BFloat16>&);

template <typename T>
int64_t attention_grad_scratch(const Attention<T>& a, int64_t max_keys) {
  const int64_t widths = tile_padded(a.d_qk) + tile_padded(a.d_vo);
  const int64_t keys = (max_keys + kKeyTile - 1) / kKeyTile * kKeyTile;  // tiles take whole tiles of keys
  return keys * widths * 2 + kLanes * widths * 3 + 5 * kKeyTile * kLanes;
}
template int64_t attention_grad_scratch(const Attention<float>&, int64_t);
template int64_t attention_grad_scratch(const Attention<BFloat16>&, int64_t);

int kernel_table_count() {
  return 1 + static_cast<int>(simd_tables().size());
}
const KernelTable& kernel_table(int i) {
  return i == 0 ? generic_kernels() : simd_tables()[i - 1];
}

const KernelTable& kernels() {
  static const KernelTable& table = choose();
  return table;
}

namespace {

bool has_bf16_products() {
  if (const char* cap = std::getenv("ONEDNN_MAX_CPU_ISA"); cap != nullptr) {
    const std::string isa = cap;  // only from AVX512_CORE_BF16 on does oneDNN have bf16 products
    if (isa.find("BF16") == std::string::npos && isa.find("AMX") == std::string::npos && isa != "ALL" &&
        isa != "DEFAULT")
      return false;
  }
#ifdef __x86_64__
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  if (edx >> 22 & 1) return true;                                            // AMX-BF16
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 5 & 1);  // AVX512_BF16
#else
  return false;
#endif
}

}  // namespace

bool bf16_is_fast() {
  static const bool fast = has_bf16_products();
  return fast;
}

}  // namespace qkv
