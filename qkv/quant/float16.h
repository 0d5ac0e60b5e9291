// Rounding to f16.
#pragma once

#include <bit>
#include <cstdint>

#include "qkv/tensor/dtype.h"

namespace qkv {

// The nearest f16, ties to even. Infinite from 65520 on; every NaN becomes the quiet one.
inline Float16 round_to_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
  uint32_t rounded = 0;
  if (magnitude > 0x7F800000) {  // NaN
    rounded = 0x7E00;
  } else if (magnitude >= 0x47800000) {  // 65536 and more
    rounded = 0x7C00;
  } else if (magnitude >= 0x38800000) {  // 2^-14 and more: a normal f16
    const uint32_t rebased = magnitude - 0x38000000;
    rounded = (rebased + 0xFFF + (rebased >> 13 & 1)) >> 13;
  } else {  // the sum's last bit is worth 2^-24, as is a subnormal f16's
    rounded = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  }
  return {static_cast<uint16_t>(sign | rounded)};
}

}  // namespace qkv
