// Softplus and its derivative, for loops over numbers.
#pragma once

#include <cmath>

namespace qkv {

// ln(1 + e^x); x itself where that is the same number.
inline float softplus(float x) {
  constexpr float kSame = 20;
  return x > kSame ? x : std::log1p(std::exp(x));
}
inline float sigmoid(float x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace qkv
