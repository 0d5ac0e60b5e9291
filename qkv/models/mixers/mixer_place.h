// The place of a mixer in a model, for which its layer is made.
#pragma once

#include <cstdint>
#include <string>

#include "qkv/kernels/mask.h"
#include "qkv/nn/sublayer.h"

namespace qkv {

class Parameters;
struct ModelSpec;

// The place of a mixer in a model: the layer that it is built for.
struct MixerPlace {
  Parameters& parameters;
  const std::string& name;  // prefix of its parameters' names
  const ModelSpec& spec;    // as if all layers were of this layer's kind
  Mask mask;                // the stack's: causal or full
  int64_t layer;            // counted from 0
  uint32_t site;            // first of its random sites
  InitStd std;
};

// Throws Error naming mixer `name` unless it stands in blocks that read the tokens in turn; `decoder`: of a
// decoder.
void check_reads_in_turn(const ModelSpec& spec, const char* name, bool decoder);

// Throws Error if the width of a stack cannot be cut into the heads of mixer `name`; their number is `key` in
// configurations.
void check_heads(const ModelSpec& spec, const char* name, int64_t heads, const char* key);

}  // namespace qkv
