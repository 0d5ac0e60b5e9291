#include "qkv/models/embedding.h"

#include <cmath>
#include <numbers>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/embedding.h"
#include "qkv/ops/grid.h"
#include "qkv/ops/parts.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

// W_p^T f32 [rows, spec.width] by formula: sine and cosine of each angle in `width` columns from
// `first_column` on, 0 in the others. Vaswani et al. 2017, section 3.5, count positions and pairs from 0,
// with base 10000 (spec.position_base). Phuong & Hutter, section 5, count from 1, with base l_max. For
// sinusoidal_closed the last wavelength is that of the base itself.
Tensor sinusoids(const ModelSpec& spec, int64_t rows, int64_t first_column, int64_t width) {
  const bool paper = spec.positions == Positions::sinusoidal_paper,
             closed = spec.positions == Positions::sinusoidal_closed,
             halves = spec.positions == Positions::sinusoidal_halves || closed;
  const int64_t first = paper ? 1 : 0, usual = closed ? 2 : first,
                first_position = closed && spec.first_position > 0 ? spec.first_position : usual;
  const double base = paper ? static_cast<double>(spec.context) : spec.position_base;
  const auto pairs = static_cast<double>(closed ? std::max<int64_t>(1, width / 2 - 1) : width / 2);
  Tensor table = Tensor::zeros({rows, spec.width}, DType::f32);
  for (int64_t t = 0; t < rows; ++t) {
    const auto to = table.mutable_row<float>(t).subspan(first_column, width);
    for (int64_t i = 0; i < width / 2; ++i) {
      const double angle =
          static_cast<double>(t + first_position) / std::pow(base, static_cast<double>(i + first) / pairs);
      const int64_t sine = halves ? i : 2 * i, cosine = halves ? width / 2 + i : 2 * i + 1;
      to[sine] = static_cast<float>(std::sin(angle));
      to[cosine] = static_cast<float>(std::cos(angle));
    }
  }
  return table;
}

// The features of Jaegle et al. 2021, section 3.2, f32 [context, width]: x_t from -1 to 1, then sin(pi f_k
// x_t), then cos(pi f_k x_t), with K = (width - 1) / 2 frequencies f_k evenly spaced from 1 to context / 2.
// An even width has a 0 more.
Tensor fourier_features(int64_t context, int64_t width) {
  const int64_t bands = (width - 1) / 2;
  Tensor table = Tensor::zeros({context, width}, DType::f32);
  for (int64_t t = 0; t < context; ++t) {
    const double x = context == 1 ? -1 : -1 + 2 * static_cast<double>(t) / static_cast<double>(context - 1);
    const auto to = table.mutable_row<float>(t);
    to[0] = static_cast<float>(x);
    for (int64_t k = 0; k < bands; ++k) {
      const double most = static_cast<double>(context) / 2,
                   f = bands == 1 ? 1
                                  : 1 + (most - 1) * static_cast<double>(k) / static_cast<double>(bands - 1);
      to[1 + k] = static_cast<float>(std::sin(std::numbers::pi * f * x));
      to[1 + bands + k] = static_cast<float>(std::cos(std::numbers::pi * f * x));
    }
  }
  return table;
}

// [N]: rows (axis 0) or columns (axis 1) of positions in a grid.
Indices grid_axis(const Indices& positions, int64_t columns, size_t axis) {
  const Indices both = grid_positions(positions, columns);
  std::vector<int32_t> out;
  for (int64_t r = 0; r < both.rows(); ++r) out.push_back(both.row(r)[static_cast<int64_t>(axis)]);
  return out;
}

bool is_formula(Positions positions) {
  using enum Positions;
  return positions == sinusoidal || positions == sinusoidal_paper || positions == sinusoidal_halves ||
         positions == sinusoidal_closed;
}

}  // namespace

InputEmbedding::InputEmbedding(Parameters& parameters, const std::string& name, const ModelSpec& given,
                               Parameter& token)
    : spec_(given), parameters_(&parameters), token_(&token) {
  const Initializer normal{Initializer::Kind::normal, given.init_std};
  if (given.embedding_width > 0)
    projection_ = std::make_unique<Linear>(parameters, name + ".projection", given.embedding_width,
                                           given.width, given.embedding_projected_last, given.init_std);
  if (given.features.any())
    features_ =
        std::make_unique<FeatureEmbedding>(parameters, name, given.features, given.width, given.init_std);
  if (given.embedding_projected_last) spec_.width = given.embedding_width;
  const ModelSpec& spec = spec_;  // its width is that of the sum of embeddings
  const int64_t rows = spec.grid > 0 ? (spec.context + spec.grid - 1) / spec.grid : spec.context;
  if (spec.positions == Positions::learned) {
    const auto table = [&](const char* of, int64_t count, int64_t width) {
      positions_.push_back({&parameters.add(name + of, {count, width}, ParameterKind::matrix, normal)});
    };
    table(".position", rows, spec.axial_width > 0 ? spec.axial_width : spec.width);
    if (spec.grid > 0) table(".column", spec.grid, spec.width - spec.axial_width);
  } else if (is_formula(spec.positions)) {
    const int64_t width = spec.grid > 0 ? spec.width / 2 : spec.width;
    positions_.push_back({nullptr, sinusoids(spec, rows, 0, width)});
    if (spec.grid > 0) positions_.push_back({nullptr, sinusoids(spec, spec.grid, width, width)});
  } else if (spec.positions == Positions::fourier) {
    positions_.push_back({nullptr, fourier_features(spec.context, spec.width)});
  }
  if (spec.segments > 0)
    segment_ = &parameters.add(name + ".segment", {spec.segments, spec.width}, ParameterKind::matrix, normal);
  if (spec.embedding_norm)
    norm_ = std::make_unique<Norm>(parameters, name + ".norm", spec.width, spec.norm());
}

Tensor InputEmbedding::as_read(Tensor x) const {
  if (spec_.embedding_unit) x = unit_rows(x);
  if (projection_ && !spec_.embedding_projected_last) x = projection_->forward(x);
  if (spec_.embedding_scaled) x = scaled(x, std::sqrt(static_cast<float>(spec_.width)));
  return spec_.embedding_multiplier != 1 ? scaled(x, spec_.embedding_multiplier) : x;
}

Tensor InputEmbedding::tokens(const Indices& ids) const {
  return as_read(embedding(ids, token_->weight(), "token id", parameters_->compute));
}

Tensor InputEmbedding::forward(const Indices& ids, const Tensor& features, const Context& context,
                               std::string_view stack, uint32_t site) const {
  check(ids.defined() && ids.count() == context.layout.rows(), "model: {} ids do not fit a layout of {} rows",
        ids.count(), context.layout.rows());
  check(!features.defined() || features_, "model: it reads tokens, and has no place for features");
  check(features.defined() || !features_, "model: it reads images or spectrograms, and there are none");
  const DType type = parameters_->compute;
  Tensor x =
      features.defined()
          ? as_read(place_features(ids, token_->weight(),
                                   features_->forward(convert(features, type), context.layout.offsets)))
          : tokens(ids);
  context.visit(stack, ".embedding.token", x);
  const auto position = [&](size_t axis) {
    const auto& [learned, formula] = positions_[axis];
    const Indices& in_a_row = context.layout.positions;
    const Indices at = spec_.grid > 0 ? grid_axis(in_a_row, spec_.grid, axis) : in_a_row;
    return convert(embedding(at, learned != nullptr ? learned->value : formula, "position"), x.dtype());
  };
  const auto add_position = [&](Tensor p, std::string_view of) {
    context.visit(stack, of, p);
    x = add(x, p);
  };
  if (spec_.axial_width > 0)
    add_position(join_columns(position(0), position(1)), ".embedding.position");
  else
    for (size_t axis = 0; axis < positions_.size(); ++axis)
      add_position(position(axis), axis == 0 ? ".embedding.position" : ".embedding.column");
  if (segment_ != nullptr) {
    // A model with one segment reads both texts of a pair as segment 0.
    const Indices segments =
        context.segments.defined() && spec_.segments > 1 ? context.segments : Indices::zeros(ids.count());
    Tensor its = embedding(segments, segment_->value, "segment");
    context.visit(stack, ".embedding.segment", its);
    x = add(x, its);
  }
  context.visit(stack, ".embedding.sum", x);
  if (norm_) x = norm_->forward(x, context);
  x = dropout(x, context.dropout(spec_.embedding_dropout, site));
  return spec_.embedding_projected_last ? projection_->forward(x) : x;
}

}  // namespace qkv
