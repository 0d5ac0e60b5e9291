// Random vectors for random features.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkv/base/rng.h"

namespace qkv {

// `count` vectors of `width` standard normal numbers, one after another. orthogonal: those of each `width`
// neighbours are made orthogonal by Gram-Schmidt, and get the lengths of other normal vectors (Choromanski et
// al. 2021, section 2.4).
std::vector<float> random_vectors(int64_t count, int64_t width, bool orthogonal, const RandomStream& stream);

}  // namespace qkv
