// Shared parts of image encoders: ViT and DeiT.
#pragma once

#include "qkv/io/family/family_parts.h"

namespace qkv {

// The differences between the two.
struct ImageFamily {
  const char* type;
  const char* base;  // prefix of the class names
  const char* prefix;
  int64_t tokens;  // tokens before the patches: the class token, DeiT's distillation token
};

ModelSpec read_image_config(const JsonField& config, const ImageFamily& family);
OrderedJson write_image_config(const ModelSpec& spec, const ImageFamily& family);
std::vector<WeightName> image_weights(const ModelSpec& spec, const ImageFamily& family);
bool reads_patches(const ModelSpec& spec, const ImageFamily& family);
// True for the bare model's pooler, which a classifier's file may contain.
bool is_extra_in_vit(const ModelSpec& spec, const std::string& name);

}  // namespace qkv
