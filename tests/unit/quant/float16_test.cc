#include "qkv/quant/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace qkv::float16_test {
namespace {

TEST(RoundToF16, EveryF16Stays) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = float_from_f16(static_cast<uint16_t>(bits));
    if (std::isnan(x)) continue;
    EXPECT_EQ(round_to_f16(x).bits, bits);
  }
}

TEST(RoundToF16, NearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const double low = float_from_f16(static_cast<uint16_t>(bits));
    const double high = float_from_f16(static_cast<uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact
    const uint32_t even = bits % 2 ? bits + 1 : bits;
    EXPECT_EQ(round_to_f16(middle).bits, even);
    EXPECT_EQ(round_to_f16(-middle).bits, even | 0x8000);
    EXPECT_EQ(round_to_f16(std::nextafter(middle, 0.0f)).bits, bits);
    EXPECT_EQ(round_to_f16(std::nextafter(middle, 1e6f)).bits, bits + 1);
  }
}

TEST(RoundToF16, BeyondItsRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(round_to_f16(std::nextafter(65520.0f, 0.0f)).bits, 0x7BFF);
  EXPECT_EQ(round_to_f16(65520).bits, 0x7C00);
  EXPECT_EQ(round_to_f16(-1e30f).bits, 0xFC00);
  EXPECT_EQ(round_to_f16(infinity).bits, 0x7C00);
  EXPECT_EQ(round_to_f16(0x1p-25f).bits, 0);
  EXPECT_EQ(round_to_f16(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
  EXPECT_EQ(round_to_f16(std::numeric_limits<float>::quiet_NaN()).bits, 0x7E00);
}

}  // namespace
}  // namespace qkv::float16_test
