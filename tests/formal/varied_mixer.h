// Random mixers, and feed-forward networks that mix tokens, for tests/formal/varied_shape.cc.
#pragma once

#include "tests/formal/varied_case.h"

namespace qkv {

// Another mixer than attention, where the rest is nothing that attention alone knows.
void draw_mixer(Uniform& u, ModelSpec& spec, VariedHyperparameters& hyper);
// A feed-forward network that also reads the row before, of some decoders.
void draw_channel_mix(Uniform& u, ModelSpec& spec, VariedHyperparameters& hyper);

}  // namespace qkv
