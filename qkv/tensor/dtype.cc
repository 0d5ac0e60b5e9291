#include "qkv/tensor/dtype.h"

#include <bit>
#include <cmath>
#include <string>

#include "qkv/base/error.h"

namespace qkv {

float float_from_f16(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16, exponent = h >> 10 & 31, fraction = h & 0x3FFu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  if (exponent == 0)
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f));
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

std::optional<uint16_t> f16_from_float(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  constexpr uint32_t kLeastNormal = 113u << 23, kInfinity = 255u << 23, kBeyond = 143u << 23;
  const auto whole = [&](uint32_t f16) { return std::optional(static_cast<uint16_t>(sign | f16)); };
  if (magnitude < kLeastNormal) {
    const float steps = std::bit_cast<float>(magnitude) * 0x1p24f;
    return steps == std::floor(steps) ? whole(static_cast<uint32_t>(steps)) : std::nullopt;
  }
  if ((magnitude & 0x1FFFu) != 0 || (magnitude >= kBeyond && magnitude < kInfinity)) return std::nullopt;
  if (magnitude >= kInfinity) return whole(0x7C00u | (magnitude >> 13 & 0x3FFu));
  return whole((magnitude >> 13) - (112u << 10));
}

}  // namespace qkv
