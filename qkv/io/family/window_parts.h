// Attention windows in configs of Llama's relatives: sliding_window, and the layers that have it.
#pragma once

#include "qkv/io/family/family_parts.h"

namespace qkv {

// Reads the window of all layers: the number of last tokens. `otherwise`: the default; 0: all tokens.
void read_window(const JsonField& config, ModelSpec& spec, int64_t otherwise = 0);
OrderedJson window_json(const ModelSpec& spec);

// The names of the kinds of layers in layer_types.
inline constexpr const char *kWindowed = "sliding_attention", *kFull = "full_attention";

// Reads windows of some layers: layer_types lists the layers with a window; without it, the first
// max_window_layers layers have none.
void read_layer_windows(const JsonField& config, ModelSpec& spec);
void write_layer_windows(const ModelSpec& spec, OrderedJson& config);
// The kind of each layer. REQUIRES: some layers have a window.
OrderedJson layer_types(const ModelSpec& spec);

}  // namespace qkv
