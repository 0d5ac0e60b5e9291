// Parts of families whose layers are not all attention: the tensors of states and convolutions, and layers
// of several kinds.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "qkv/io/family/family_parts.h"

namespace qkv {

// Gives each layer the block of its name; those named "default", if there are any, have the model's own.
// REQUIRES: a name for each layer, and a block for each other name.
void give_blocks(ModelSpec& spec, const std::vector<std::string>& names,
                 const std::map<std::string, BlockSpec>& blocks);

// True for each layer that layer_types calls `type`, if there is such a field; else what `otherwise` says of
// it. Throws Error for a type that is neither this nor `other`.
std::vector<bool> read_layer_types(const JsonField& config, int64_t layers, const char* type,
                                   const char* other, const std::function<bool(int64_t layer)>& otherwise);
// Layers that attend are of type `attends`.
OrderedJson write_layer_types(const ModelSpec& spec, const char* attends, const char* other);

// The block with another mixer, whose attention means nothing.
BlockSpec with_mixer(BlockSpec block, const MixerSpec& mixer);
// The first layer's mixer that is an M; null: no layer has one.
template <typename M>
const M* first_mixer(const ModelSpec& spec) {
  for (int64_t l = 0; l < spec.layers; ++l)
    if (const M* mixer = spec.block(l).mixer.get_if<M>()) return mixer;
  return nullptr;
}
// True for a decoder with a head that its config.json can express and with layers whose mixer is an M.
template <typename M>
bool is_hybrid(const ModelSpec& spec) {
  return spec.architecture == Architecture::decoder && has_decoder_head(spec) &&
         first_mixer<M>(spec) != nullptr;
}
// True for such a decoder all of whose layers have the mixer M.
template <typename M>
bool is_all(const ModelSpec& spec) {
  return is_hybrid<M>(spec) && spec.kinds.empty();
}
// The spec with the block of the first layer that attends; itself if none does.
ModelSpec as_if_all_attend(const ModelSpec& spec);

// The tensors of mixers, named as Hugging Face has them, of the block's part `engine` and in the file
// `file` ("model.layers.0.mamba.").
void add_mamba(WeightNames& names, const MambaMixer& mixer, const std::string& engine,
               const std::string& file);
void add_mamba2(WeightNames& names, const Mamba2Mixer& mixer, const std::string& engine,
                const std::string& file);
void add_convolution(WeightNames& names, const ConvolutionMixer& mixer, int64_t width,
                     const std::string& engine, const std::string& file);
// joined: queries, keys, values and gates are in one tensor, by heads of keys (Qwen3-Next); else in several
// (Qwen3.5).
void add_gated_delta(WeightNames& names, const GatedDeltaMixer& mixer, bool joined, const std::string& engine,
                     const std::string& file);

// The limits of steps: two numbers. A high one of at least kNoStep, or null, means none.
inline constexpr float kNoStep = 1e30F;
void read_step_limits(const JsonField& config, const char* key, Mamba2Mixer& mixer);
// "auto", or a number: the rank of Mamba's steps.
int64_t read_step_rank(const JsonField& config, const char* key, int64_t width);

}  // namespace qkv
