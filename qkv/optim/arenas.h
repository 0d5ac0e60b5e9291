// Loops over arenas of parameters (nn/parameter.h).
#pragma once

#include <cstdint>

#include "qkv/nn/parameter.h"

namespace qkv {

inline constexpr ParameterKind kKinds[] = {ParameterKind::matrix, ParameterKind::vector};
inline constexpr int64_t kGrain = 1 << 15;  // elements that a thread takes at a time

}  // namespace qkv
