#include "qkv/nn/relative.h"

#include "qkv/nn/linear.h"
#include "qkv/ops/parts.h"

namespace qkv {

DistanceRows RelativeSpec::rows(bool causal, int64_t reach) const {
  using enum DistanceRows::Kind;
  if (kind == RelativeAttention::disentangled) return {log_buckets, distance, buckets};
  const bool all = kind == RelativeAttention::transformer_xl && (distance == 0 || reach < distance);
  return {causal ? behind : clipped, all ? reach : distance};
}

RelativeEncoding::RelativeEncoding(Parameters& parameters, const std::string& name, const RelativeSpec& spec,
                                   const Shape& shape, float std)
    : spec_(spec), shape_(shape) {
  const int64_t all = shape.heads * shape.d_qk;
  const Initializer normal{Initializer::Kind::normal, std};
  const auto projection = [&](const char* of, bool bias) {
    return std::make_unique<Linear>(parameters, fmt::format("{}.{}", name, of), shape.width, all, bias, std);
  };
  const auto bias = [&](const char* of) {
    return &parameters.add(fmt::format("{}.{}", name, of), {all}, ParameterKind::vector,
                           {Initializer::Kind::zeros});
  };
  switch (spec.kind) {
    case RelativeAttention::none:
      break;
    case RelativeAttention::shaw:
    case RelativeAttention::shaw_both:
      vectors_ = &parameters.add(name + ".distance", {spec.rows(shape.causal, 0).rows(), shape.d_qk},
                                 ParameterKind::matrix, normal);
      break;
    case RelativeAttention::transformer_xl:
      to_key_ = projection("distance", false);
      content_bias_ = bias("content_bias");
      position_bias_ = bias("position_bias");
      if (!spec.segments) break;
      segment_bias_ = bias("segment_bias");
      segment_ = &parameters.add(name + ".segment", {2, all}, ParameterKind::matrix, normal);
      break;
    case RelativeAttention::disentangled:
      if (spec.shared_projections) break;
      if (spec.by_content) to_key_ = projection("distance_key", shape.bias && shape.key_bias);
      if (spec.by_position) to_query_ = projection("distance_query", shape.bias);
      break;
  }
}

PairTables RelativeEncoding::tables(Heads& q, const Heads& k, const Linear& query_key,
                                    const Context& context) const {
  const int64_t heads = shape_.heads, d = shape_.d_qk;
  PairTables out;
  out.columns = context.distance_columns;
  if (context.visibility.defined()) out.positions = context.layout.positions;
  const auto products = [&](const Heads& x, const Tensor& table, int64_t column, int64_t of_heads) {
    return relative_products(x, {table, column, of_heads, d}, heads, shape_.scale);
  };
  if (vectors_ != nullptr) {
    out.by_query = products(q, vectors_->value, 0, 1);
    if (spec_.kind == RelativeAttention::shaw_both) out.by_key = products(k, vectors_->value, 0, 1);
    return out;
  }
  if (spec_.kind == RelativeAttention::transformer_xl) {
    const Tensor own = columns_of(q.x, q.column, q.column + heads * d);
    q = {shifted(own, content_bias_->value), 0, heads, d};
    const auto moved = [&](const Parameter& by) { return Heads{shifted(own, by.value), 0, heads, d}; };
    out.by_query =
        products(moved(*position_bias_), to_key_->forward(context.distance_vectors, context), 0, heads);
    if (segment_ == nullptr) return out;
    out.by_segment = products(moved(*segment_bias_), segment_->value, 0, heads);
    out.segments = context.segments.defined() ? context.segments : Indices::zeros(context.layout.rows());
    return out;
  }
  if (spec_.shared_projections) {
    const Tensor both = query_key.forward(context.distance_vectors, context);
    if (spec_.by_content) out.by_query = products(q, both, heads * d, shape_.kv_heads);
    if (spec_.by_position) out.by_key = products(k, both, 0, heads);
    return out;
  }
  if (to_key_) out.by_query = products(q, to_key_->forward(context.distance_vectors, context), 0, heads);
  if (to_query_) out.by_key = products(k, to_query_->forward(context.distance_vectors, context), 0, heads);
  return out;
}

}  // namespace qkv
