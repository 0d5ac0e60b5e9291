// Windows of attention, as Llama's kin say them: sliding_window, and which of the layers have it.
#pragma once

#include "qkv/io/family/family_parts.h"

namespace qkv {

// Every layer's window: the last so many tokens. `otherwise`: where nothing is said of it; 0: all.
void read_window(const JsonField& config, ModelSpec& spec, int64_t otherwise = 0);
OrderedJson window_json(const ModelSpec& spec);

// The names of a layer's kinds in layer_types.
inline constexpr const char *kWindowed = "sliding_attention", *kFull = "full_attention";

// Windows of some layers: layer_types names those with a window, else max_window_layers says how
// many below them have none.
void read_layer_windows(const JsonField& config, ModelSpec& spec);
void write_layer_windows(const ModelSpec& spec, OrderedJson& config);
// The kind of each layer. REQUIRES: some have a window.
OrderedJson layer_types(const ModelSpec& spec);

}  // namespace qkv
