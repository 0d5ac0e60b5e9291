// From rows of numbers to what stands in tokens' places.
#pragma once

#include <string>
#include <vector>

#include "qkv/models/feature_spec.h"
#include "qkv/nn/linear.h"

namespace qkv {

// An id that is no token's: a row of features stands there.
inline constexpr int32_t kFeature = -1;

// A linear map of patches, or two convolutions of frames.
class FeatureEmbedding {
 public:
  // Parameters begin with `name`.
  FeatureEmbedding(Parameters& parameters, const std::string& name, const FeatureSpec& spec, int64_t width,
                   float std);

  // features [M, spec.width()], of patches one row each, of frames two rows for each row of the result, whose
  // sequences `offsets` tell -> [rows, width].
  Tensor forward(const Tensor& features, const std::vector<int32_t>& offsets) const;

 private:
  FeatureSpec spec_;
  std::vector<Linear> layers_;  // of patches one; of frames two, of three rows each
};

// Tokens' embeddings and rows of features in the places that ids [N] say: table [V, D] of tokens, rows
// [M, D] in the order in which kFeature occurs -> [N, D].
Tensor place_features(const Indices& ids, const Tensor& table, const Tensor& rows);

// An image of [channels, image, image] f32 numbers, cut into patches: f32 [patches, channels patch patch], as
// a convolution's kernel has them.
Tensor cut_patches(Span<const float> pixels, const FeatureSpec& spec);

}  // namespace qkv
