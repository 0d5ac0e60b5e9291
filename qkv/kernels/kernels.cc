#include "qkv/kernels/kernels.h"

#include <cpuid.h>

#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "qkv/base/error.h"
#include "qkv/kernels/cpu/tables.h"

namespace qkv {
namespace {

// The vector length that the SIMD kernels round rows up to, at most.
constexpr int64_t kMaxLanes = 16;
int64_t padded(int64_t n) {
  return (n + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
}

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
  return (padded(a.d_qk) + padded(a.d_vo)) * 2 * kQueryTile + kKeyTile * kQueryTile;
}
template int64_t attention_scratch(const Attention<float>&);
template int64_t attention_scratch(const Attention<BFloat16>&);

template <typename T>
int64_t attention_grad_scratch(const Attention<T>& a, int64_t max_keys) {
  const int64_t widths = padded(a.d_qk) + padded(a.d_vo);
  return max_keys * widths * 2 + kQueryTile * widths * 3 + 2 * kKeyTile * kQueryTile;
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

bool bf16_is_fast() {
  if (const char* cap = std::getenv("ONEDNN_MAX_CPU_ISA"); cap != nullptr) {
    const std::string isa = cap;  // only from AVX512_CORE_BF16 on does oneDNN have bf16 products
    if (isa.find("BF16") == std::string::npos && isa.find("AMX") == std::string::npos && isa != "ALL" &&
        isa != "DEFAULT")
      return false;
  }
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  if (edx >> 22 & 1) return true;                                            // AMX-BF16
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 5 & 1);  // AVX512_BF16
}

}  // namespace qkv
