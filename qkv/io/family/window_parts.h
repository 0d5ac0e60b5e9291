// Attention windows in configs of Llama's relatives: sliding_window, and the layers that have it.
#pragma once

#include <functional>
#include <string>
#include <vector>

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
// The type of each layer: sliding_attention if it has a window, else full_attention.
OrderedJson layer_types(const ModelSpec& spec);

// attention_window: one number, or one for each layer; half of the tokens are on each side. `global`: the
// first so many tokens see all.
std::vector<Pattern> read_two_sided_windows(const JsonField& config, int64_t layers, int64_t global);
// The numbers of attention_window.
OrderedJson two_sided_windows_json(const std::vector<Pattern>& patterns, int64_t layers);
// Longformer's projections for global tokens, of the block `engine`; `self`: what their names begin with.
void add_global_projections(WeightNames& names, int64_t width, const std::string& engine,
                            const std::string& self);

// True for each layer that layer_types calls windowed; without that field, for layers for which
// `otherwise` is true.
std::vector<bool> read_windowed(const JsonField& config, int64_t layers,
                                const std::function<bool(int64_t layer)>& otherwise);
// Gives the layers for which `which` is true another block. If only patterns differ, the spec has one kind of
// block with patterns in turn; else these layers' kind has the name `name`.
void give_block(ModelSpec& spec, const std::vector<bool>& which, const std::string& name,
                const BlockSpec& block);
// True for each layer without rotary positions: no_rope_layers has 0 for it; without that field every
// no_rope_layer_interval-th layer has none.
std::vector<bool> read_unrotated(const JsonField& config, int64_t layers);
// The block without positions: its attention knows no order but the mask's.
BlockSpec without_positions(const BlockSpec& block);
// The window of a layer; 0: none.
int64_t window_of(const ModelSpec& spec, int64_t layer);
// The window of the first layer that has one; 0: no layer has.
int64_t first_window(const ModelSpec& spec);

}  // namespace qkv
