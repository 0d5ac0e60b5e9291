#include "qkv/models/embedding.h"

#include <cmath>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/embedding.h"

namespace qkv {
namespace {

// W_p^T f32 [context, width] of a formula: sine and cosine of each angle. Positions and pairs
// count from 0 and the base is 10000 in Vaswani et al. 2017, section 3.5; from 1 and l_max in Phuong &
// Hutter, section 5. The closed range of wavelengths ends at that of the base itself.
Tensor sinusoids(const ModelSpec& spec) {
  const bool paper = spec.positions == Positions::sinusoidal_paper,
             closed = spec.positions == Positions::sinusoidal_closed,
             halves = spec.positions == Positions::sinusoidal_halves || closed;
  const int64_t first = paper ? 1 : 0, first_position = closed ? 2 : first;
  const double base = paper ? static_cast<double>(spec.context) : 10000;
  const auto pairs = static_cast<double>(closed ? std::max<int64_t>(1, spec.width / 2 - 1) : spec.width / 2);
  Tensor table = Tensor::zeros({spec.context, spec.width}, DType::f32);
  float* to = table.mutable_data<float>();
  for (int64_t t = 0; t < spec.context; ++t)
    for (int64_t i = 0; i < spec.width / 2; ++i) {
      const double angle =
          static_cast<double>(t + first_position) / std::pow(base, static_cast<double>(i + first) / pairs);
      const int64_t sine = halves ? i : 2 * i, cosine = halves ? spec.width / 2 + i : 2 * i + 1;
      to[t * spec.width + sine] = static_cast<float>(std::sin(angle));
      to[t * spec.width + cosine] = static_cast<float>(std::cos(angle));
    }
  return table;
}

}  // namespace

InputEmbedding::InputEmbedding(Parameters& parameters, const std::string& name, const ModelSpec& given,
                               Parameter& token)
    : spec_(given), token_(&token) {
  const Initializer normal{Initializer::Kind::normal, given.init_std};
  if (given.embedding_width > 0)
    projection_ = std::make_unique<Linear>(parameters, name + ".projection", given.embedding_width,
                                           given.width, given.embedding_projected_last, given.init_std);
  if (given.embedding_projected_last) spec_.width = given.embedding_width;
  const ModelSpec& spec = spec_;  // of the sum
  if (spec.positions == Positions::learned)
    position_ =
        &parameters.add(name + ".position", {spec.context, spec.width}, ParameterKind::matrix, normal);
  else if (spec.positions == Positions::sinusoidal || spec.positions == Positions::sinusoidal_paper ||
           spec.positions == Positions::sinusoidal_halves || spec.positions == Positions::sinusoidal_closed)
    sinusoids_ = sinusoids(spec);
  if (spec.segments > 0)
    segment_ = &parameters.add(name + ".segment", {spec.segments, spec.width}, ParameterKind::matrix, normal);
  if (spec.embedding_norm)
    norm_ = std::make_unique<Norm>(parameters, name + ".norm", spec.width, spec.norm());
}

Tensor InputEmbedding::forward(const Tensor& ids, const Context& context, uint32_t site) const {
  check(ids.defined() && ids.count() == context.layout.rows(), "model: {} ids do not fit a layout of {} rows",
        ids.defined() ? ids.count() : 0, context.layout.rows());
  Tensor x = embedding(ids, token_->value, "token id");
  if (projection_ && !spec_.embedding_projected_last) x = projection_->forward(x);
  if (spec_.embedding_scaled) x = scaled(x, std::sqrt(static_cast<float>(spec_.width)));
  if (spec_.embedding_multiplier != 1) x = scaled(x, spec_.embedding_multiplier);
  if (position_ != nullptr || sinusoids_.defined()) {
    const Tensor& table = position_ != nullptr ? position_->value : sinusoids_;
    x = add(x, convert(embedding(context.layout.positions, table, "position"), x.dtype()));
  }
  if (segment_ != nullptr) {
    // A model of one segment reads both texts of a pair as its first.
    const Tensor segments = context.segments.defined() && spec_.segments > 1
                                ? context.segments
                                : Tensor::zeros({ids.count()}, DType::i32);
    x = add(x, embedding(segments, segment_->value, "segment"));
  }
  if (norm_) x = norm_->forward(x);
  x = dropout(x, context.dropout(spec_.embedding_dropout, site));
  return spec_.embedding_projected_last ? projection_->forward(x) : x;
}

}  // namespace qkv
