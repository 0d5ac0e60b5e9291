// The places of norms and the order of branches in a block (nn/residual.h).
#pragma once

#include <cstdint>

namespace qkv {

// The places of the norms in a block.
enum class NormPlacement : uint8_t {
  pre,       // x + sublayer(norm(x))
  post,      // norm(x + sublayer(x))
  sandwich,  // x + norm'(sublayer(norm(x))) (Ding et al. 2021; Gemma 2)
  branch,    // x + norm(sublayer(x)) (OLMo 2)
  none,      // x + sublayer(x)
  stream,    // norm(x) + sublayer(norm(x)) (an option of BLOOM)
};

// The order of a block's attention and its feed-forward network.
enum class Branches : uint8_t {
  serial,      // the second reads the sum with the first
  parallel,    // both read the same, each through its own norm (GPT-NeoX)
  one_norm,    // both read the same normalised x (GPT-J)
  reversible,  // two streams x and y: y + f(x), then x + g(that) (Gomez et al. 2017, eq. 8; Reformer)
};

}  // namespace qkv
