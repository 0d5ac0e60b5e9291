// CLIP (Radford et al. 2021): a model of texts and one of images, whose vectors are compared.
#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "qkv/models/transformer.h"

namespace qkv {

// Both models, and what compares them.
struct ClipModel {
  std::unique_ptr<Transformer> text, vision;
  Tensor text_projection, visual_projection;  // [projection, width of each]
  float log_scale = 0;                        // the logarithm of what cosines are multiplied by
  int32_t end = 0;                            // the token at which a text's vector stands
  std::map<std::string, DType> stored = {};   // what the file had these three tensors in, where not f32

  float logit_scale() const { return std::exp(log_scale); }

  // Where in a text that is: the first end token; of files that name it 2, as old ones do wrongly, the
  // largest id.
  int32_t place_of_text(std::span<const int32_t> ids) const;
};

// Whether DIR/config.json is CLIP's.
bool is_clip_dir(const std::string& dir);

// Reads such a directory. Throws Error naming file and field or tensor.
ClipModel load_clip(const std::string& dir, DType compute);

// Writes config.json and model.safetensors into an existing directory: tensors as they were read, bit for
// bit.
void save_clip(const std::string& dir, const ClipModel& clip);

}  // namespace qkv
