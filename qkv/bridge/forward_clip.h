// qkv forward for CLIP: matches texts with images.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "qkv/io/clip_dir.h"
#include "qkv/io/container/safetensors.h"

namespace qkv {

// Computes from input_ids [T, length] with attention_mask and pixel_values [I, C, H, W]: image_embeds and
// text_embeds of length 1, logits_per_image [I, T] and logits_per_text. `hidden_states` and `attentions`
// add those of both towers under text_model_output. and vision_model_output.
std::vector<std::pair<std::string, Tensor>> forward_clip(const std::string& dir, const TensorFile& in,
                                                         const std::string& path, DType compute,
                                                         bool hidden_states, bool attentions);

}  // namespace qkv
