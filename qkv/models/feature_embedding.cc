#include "qkv/models/feature_embedding.h"

#include "qkv/ops/elementwise.h"
#include "qkv/ops/embedding.h"
#include "qkv/ops/parts.h"
#include "qkv/ops/row_windows.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

constexpr int64_t kFrames = 3;  // frames that a convolution's kernel spans

}  // namespace

FeatureEmbedding::FeatureEmbedding(Parameters& parameters, const std::string& name, const FeatureSpec& spec,
                                   int64_t width, float std)
    : spec_(spec) {
  if (spec.kind == FeatureSpec::Kind::patches) {
    layers_.emplace_back(parameters, name + ".patch", spec.width(), width, spec.bias, std);
    return;
  }
  layers_.emplace_back(parameters, name + ".convolution.0", kFrames * spec.channels, width, spec.bias, std);
  layers_.emplace_back(parameters, name + ".convolution.1", kFrames * width, width, spec.bias, std);
}

Tensor FeatureEmbedding::forward(const Tensor& features, const std::vector<int32_t>& offsets) const {
  check(features.defined() && features.shape().rank() == 2 && features.width() == spec_.width(),
        "model: expected features [rows, {}], got {}", spec_.width(), features);
  if (spec_.kind == FeatureSpec::Kind::patches) return layers_[0].forward(features);
  std::vector<int32_t> frames;
  for (const int32_t row : offsets) frames.push_back(2 * row);
  const Tensor first =
      activation(Activation::gelu, layers_[0].forward(row_windows(features, frames, kFrames, 1)));
  return activation(Activation::gelu, layers_[1].forward(row_windows(first, frames, kFrames, 2)));
}

Tensor place_features(const Indices& ids, const Weight& table, const Tensor& rows) {
  std::vector<int32_t> tokens;
  for (const int32_t id : ids.values())
    if (id != kFeature) tokens.push_back(id);
  const auto n = static_cast<int32_t>(tokens.size());
  check(ids.count() - n == rows.dim(0), "model: {} rows of features for {} places", rows.dim(0),
        ids.count() - n);
  if (n == 0) return rows;
  std::vector<int32_t> places;
  int32_t token = 0, feature = n;
  for (const int32_t id : ids.values()) places.push_back(id == kFeature ? feature++ : token++);
  const Tensor embedded = embedding(std::move(tokens), table, "token id", rows.dtype());
  return select_rows(join_rows({embedded, rows}), std::move(places));
}

Tensor cut_patches(Span<const float> pixels, const FeatureSpec& spec) {
  const int64_t side = spec.image / spec.patch;
  Tensor out = Tensor::empty({side * side, spec.width()}, DType::f32);
  const auto to = out.mutable_values<float>();
  int64_t run = 0;  // rows of patches that were copied
  for (int64_t y = 0; y < side; ++y)
    for (int64_t x = 0; x < side; ++x)
      for (int64_t c = 0; c < spec.channels; ++c)
        for (int64_t r = 0; r < spec.patch; ++r, ++run) {
          const auto line = pixels.row(c * spec.image + y * spec.patch + r, spec.image);
          to.row(run, spec.patch).copy(line.row(x, spec.patch));
        }
  return out;
}

}  // namespace qkv
