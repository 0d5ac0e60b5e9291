// The target of a token for which nothing is predicted.
#pragma once

#include <cstdint>

namespace qkv {

inline constexpr int32_t kIgnored = -100;

}  // namespace qkv
