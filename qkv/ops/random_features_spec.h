// The maps of random features (ops/random_features.h).
#pragma once

#include <cstdint>

namespace qkv {

// With w_1, ..., w_m of the standard normal distribution, phi(x) . phi(y) is e^(x . y) on average:
enum class RandomMap : uint8_t {
  fourier,  // phi = e^(|x|^2 / 2) m^(-1/2) [cos w_j . x, sin w_j . x] (Rahimi & Recht 2007; Peng et al. 2021)
  positive,  // phi = e^(-|x|^2 / 2) m^(-1/2) e^(w_j . x) (Choromanski et al. 2021, lemma 1)
};

}  // namespace qkv
