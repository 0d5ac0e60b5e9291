// Embeds features, which stand in the places of tokens.
#pragma once

#include <string>
#include <vector>

#include "qkv/models/feature_spec.h"
#include "qkv/nn/linear.h"

namespace qkv {

// The id of a place that has a row of features instead of a token.
inline constexpr int32_t kFeature = -1;

// A linear layer for patches, or two convolutions for frames.
class FeatureEmbedding {
 public:
  // Names of parameters begin with `name`.
  FeatureEmbedding(Parameters& parameters, const std::string& name, const FeatureSpec& spec, int64_t width,
                   float std);

  // features [M, spec.width()] -> [rows, width]. Patches have one row per row of the result, frames two.
  // `offsets`: sequences of the result.
  Tensor forward(const Tensor& features, const std::vector<int32_t>& offsets) const;

 private:
  FeatureSpec spec_;
  std::vector<Linear> layers_;  // patches: one; frames: two, each over three frames
};

// Puts token embeddings and features into the order of ids [N]: table [V, D] of tokens, rows [M, D] in the
// order in which kFeature occurs -> [N, D].
Tensor place_features(const Indices& ids, const Weight& table, const Tensor& rows);

// Cuts an image, f32 [channels, image, image], into patches: f32 [patches, channels patch patch], in the
// order of a convolution's kernel.
Tensor cut_patches(Span<const float> pixels, const FeatureSpec& spec);

}  // namespace qkv
