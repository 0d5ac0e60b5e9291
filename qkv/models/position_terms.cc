#include "qkv/models/position_terms.h"

#include <algorithm>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/grid.h"

namespace qkv {

PositionTerms::PositionTerms(Parameters& parameters, const std::string& name, const ModelSpec& spec,
                             const Mask& mask, std::span<const int64_t> layers)
    : positions_(spec.bias()),
      heads_(spec.attention.heads),
      width_(spec.width),
      grid_(spec.grid),
      scales_(positions_ == Positions::alibi_scaled ? spec.attention.factors() : std::vector<float>()),
      rotary_(spec.attention.rotary),
      relative_(spec.attention.relative),
      causal_(mask.is_causal()) {
  if (positions_ == Positions::relative || positions_ == Positions::toeplitz) {
    const bool bidirectional = mask.kind == Mask::Kind::full || spec.order == Order::prefix;
    buckets_ = positions_ == Positions::toeplitz
                   ? DistanceBuckets::of_each(spec.relative_distance, bidirectional)
                   : DistanceBuckets{spec.relative_buckets, spec.relative_distance, bidirectional};
    const auto table = [&](const std::string& of) {
      return &parameters.add(of + ".distance", {buckets_.count, spec.attention.heads}, ParameterKind::vector,
                             {Initializer::Kind::normal, spec.init_std});
    };
    if (spec.relative_by_layer)
      for (const int64_t l : layers) distances_[l] = table(fmt::format("{}.block.{}", name, l));
    else
      distance_ = table(name);
  }
  if (relative_.kind == RelativeAttention::disentangled) {
    vectors_ = &parameters.add(name + ".relative", {relative_.rows(causal_, 0).rows(), spec.width},
                               ParameterKind::matrix, {Initializer::Kind::normal, spec.init_std});
    if (relative_.normed)
      vector_norm_ = std::make_unique<Norm>(parameters, name + ".relative_norm", spec.width, spec.norm());
  }
}

namespace {

int32_t reach_of(const Layout& places) {
  const auto positions = places.positions.values();
  return positions.empty() ? 0 : *std::max_element(positions.begin(), positions.end());
}

}  // namespace

void PositionTerms::prepare_layer(int64_t layer, const Layout& places, Context& context) const {
  const auto own = distances_.find(layer);
  if (own != distances_.end())
    context.distance_bias = relative_bias(own->second->value, buckets_, reach_of(places));
}

void PositionTerms::prepare(const Layout& places, DType dtype, Context& context) const {
  const int32_t reach = reach_of(places);
  if (distance_ != nullptr) context.distance_bias = relative_bias(distance_->value, buckets_, reach);
  if (is_alibi(positions_))
    context.distance_bias = alibi(heads_, positions_ == Positions::alibi_evens_first, reach, scales_,
                                  positions_ == Positions::alibi_signed);
  if (rotary_.width > 0)
    context.rotation =
        rotation(rotary_, grid_ > 0 ? grid_positions(places.positions, grid_) : places.positions,
                 rotary_lengths(places, reach + 1));
  if (relative_.on()) place_distances(reach, dtype, context);
}

void PositionTerms::place_distances(int64_t reach, DType dtype, Context& context) const {
  const DistanceRows rows = relative_.rows(causal_, reach);
  context.distance_columns = rows.columns(reach);
  if (relative_.kind == RelativeAttention::transformer_xl)
    context.distance_vectors =
        convert(distance_sinusoids(causal_ ? 0 : -rows.longest, rows.rows(), width_), dtype);
  if (vectors_ != nullptr)
    context.distance_vectors = vector_norm_ ? vector_norm_->forward(vectors_->value) : vectors_->value;
}

// The length of each row's sequence so far; one for all where the scaling does not look at it, or where the
// rows were a padded batch, whose longest sequence decides for all in Hugging Face's models.
std::vector<int64_t> PositionTerms::rotary_lengths(const Layout& layout, int64_t longest) const {
  const bool looks = rotary_.scaling == RotaryScaling::dynamic || rotary_.scaling == RotaryScaling::longrope;
  if (!looks || layout.padded_length > 0) return {longest};
  const auto positions = layout.positions.values();
  std::vector<int64_t> out;
  for (int64_t s = 0; s < layout.sequences(); ++s) {
    int32_t last = -1;
    for (int32_t r = layout.offsets[s]; r < layout.offsets[s + 1]; ++r)
      last = std::max(last, positions[static_cast<size_t>(r)]);
    out.insert(out.end(), static_cast<size_t>(layout.offsets[s + 1] - layout.offsets[s]), last + 1);
  }
  return out.empty() ? std::vector<int64_t>{longest} : out;
}

}  // namespace qkv
