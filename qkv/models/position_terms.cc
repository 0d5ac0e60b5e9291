#include "qkv/models/position_terms.h"

#include <algorithm>
#include <cmath>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/grid.h"
#include "qkv/ops/relative_products.h"
#include "qkv/ops/rotary.h"

namespace qkv {

PositionTerms::PositionTerms(Parameters& parameters, const std::string& name, const ModelSpec& spec,
                             const Mask& mask, std::span<const int64_t> layers)
    : positions_(spec.bias()),
      width_(spec.width),
      grid_(spec.grid),
      scales_(positions_ == Positions::alibi_scaled ? spec.attention.factors() : std::vector<float>()),
      attention_(spec.attention),
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
  const RelativeSpec& relative = attention_.relative;
  if (relative.kind == RelativeAttention::disentangled) {
    vectors_ = &parameters.add(name + ".relative", {relative.rows(causal_, 0).rows(), spec.width},
                               ParameterKind::matrix, {Initializer::Kind::normal, spec.init_std});
    if (relative.normed)
      vector_norm_ = std::make_unique<Norm>(parameters, name + ".relative_norm", spec.width, spec.norm());
  }
}

namespace {

int32_t reach_of(const Layout& places) {
  const auto positions = places.positions.values();
  return positions.empty() ? 0 : *std::max_element(positions.begin(), positions.end());
}

// AttentionSpec::query_growth.
Tensor query_factors(const AttentionSpec& a, const Layout& places) {
  std::vector<float> factors;
  for (const int32_t position : places.positions.values()) {
    const int64_t steps = (position + a.query_growth_from) / a.query_growth_every;  // rounded down
    factors.push_back(
        static_cast<float>(1 + double{a.query_growth} * std::log1p(static_cast<double>(steps))));
  }
  return Tensor::of({std::ssize(factors), 1}, factors);
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
    context.distance_bias = alibi(attention_.heads, positions_ == Positions::alibi_evens_first, reach,
                                  scales_, positions_ == Positions::alibi_signed);
  const RotarySpec& rotary = attention_.rotary;
  if (rotary.width > 0)
    context.rotation =
        rotation(rotary, grid_ > 0 ? grid_positions(places.positions, grid_) : places.positions,
                 rotary_lengths(places, reach + 1));
  if (attention_.query_growth != 0) context.query_factors = query_factors(attention_, places);
  if (attention_.relative.on()) place_distances(reach, dtype, context);
}

void PositionTerms::place_distances(int64_t reach, DType dtype, Context& context) const {
  const RelativeSpec& relative = attention_.relative;
  const DistanceRows rows = relative.rows(causal_, reach);
  context.distance_columns = rows.columns(reach);
  if (relative.kind == RelativeAttention::transformer_xl)
    context.distance_vectors =
        convert(distance_sinusoids(causal_ ? 0 : -rows.longest, rows.rows(), width_), dtype);
  if (vectors_ != nullptr)
    context.distance_vectors = vector_norm_ ? vector_norm_->forward(vectors_->value) : vectors_->value;
}

// The length of each row's sequence so far; one for all where the scaling does not look at it, or where the
// rows were a padded batch, whose longest sequence decides for all in Hugging Face's models.
std::vector<int64_t> PositionTerms::rotary_lengths(const Layout& layout, int64_t longest) const {
  const RotaryScaling scaling = attention_.rotary.scaling;
  const bool looks = scaling == RotaryScaling::dynamic || scaling == RotaryScaling::longrope;
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
