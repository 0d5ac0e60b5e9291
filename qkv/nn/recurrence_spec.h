// The attention of recurrent decoders (nn/recurrence.h).
#pragma once

#include <cstdint>

namespace qkv {

// How a recurrent decoder looks at its source.
enum class SourceAttention : uint8_t {
  none,      // no attention: only its first state depends on the source (Sutskever et al. 2014)
  additive,  // before each step, by its last state (Bahdanau et al. 2015)
  dot,    // after each step, at the whole source (Luong et al. 2015, global attention with the score "dot")
  local,  // after each step, around a place that it predicts (the same, local-p)
};

}  // namespace qkv
