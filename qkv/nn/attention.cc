#include "qkv/nn/attention.h"

#include <numeric>
#include <utility>
#include <vector>

#include "qkv/nn/global_attention.h"
#include "qkv/nn/head_sizes.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/experts.h"
#include "qkv/ops/fast_weights.h"
#include "qkv/ops/feature_map.h"
#include "qkv/ops/group_norm.h"
#include "qkv/ops/hashed_attention.h"
#include "qkv/ops/parts.h"
#include "qkv/ops/rotary.h"
#include "qkv/ops/rows.h"

namespace qkv {

namespace {

// How a layer hashes or, without buckets, goes around in chunks. Sequences are filled up for the chunks of
// all layers.
HashedAttention hashing_of_layer(const AttentionSpec& spec, int64_t layer) {
  if (!spec.hashes(layer) && !spec.rings(layer)) return {};
  HashedAttention out = spec.hashes(layer) ? spec.hashing : spec.ring;
  out.multiple = out.whole = out.chunk;
  const HashedAttention& other = spec.hashes(layer) ? spec.ring : spec.hashing;
  if (other.chunk > 0 && !spec.shared_query_key.empty()) {
    out.multiple = std::lcm(out.multiple, other.chunk);
    out.whole = std::min(out.whole, other.chunk);
  }
  for (const Pattern& p : spec.patterns)
    if (p.block > 0) {
      out.multiple = std::lcm(out.multiple, p.block);
      out.whole = std::min(out.whole, p.block);
    }
  return out;
}

// A bias of the keys adds the same to all scores of a query, which the softmax cancels: its gradient is 0.
// It does not cancel if scores are capped or there is a sink.
IdleBias keys_at(int64_t column, const AttentionSpec& spec) {
  if (spec.key_bias && (spec.cap > 0 || spec.sinks)) return {};
  return {column, column + spec.key_columns()};
}

// The mask of a layer's self-attention, within that of its stack.
Mask mask_of_layer(Mask mask, const AttentionSpec& spec, int64_t layer) {
  mask.own_last = spec.shares_query_key(layer);
  if (spec.patterns.empty()) return mask;
  return mask.with(spec.patterns[static_cast<size_t>(layer) % spec.patterns.size()]);
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(Parameters& parameters, const std::string& name, int64_t width,
                                       const AttentionSpec& spec, Mask mask, bool self, int64_t layer,
                                       uint32_t site, InitStd std)
    : name_(name),
      spec_(spec),
      mask_(self ? mask_of_layer(mask, spec, layer) : mask),
      self_(self),
      scale_(spec.factor(self ? spec.relative.terms() : 1, layer)),
      site_(site),
      narrow_(narrow_heads(spec)),
      out_(parameters, name + ".out", spec.output_columns(), width, spec.out_bias, std.out) {
  if (spec.sinks)
    sinks_ =
        &parameters.add(name + ".sinks", {spec.heads}, ParameterKind::vector, {Initializer::Kind::zeros});
}

Tensor MultiHeadAttention::forward(const Heads& q, const Heads& k, const Heads& v, const KeyLayout& keys,
                                   const Context& context, const PairTables& pair, const Tensor& gate) const {
  return project(heads(q, k, v, keys, context, pair), context, gate);
}

Tensor MultiHeadAttention::project(Tensor heads, const Context& context, const Tensor& gate) const {
  if (gate.defined()) heads = gated(Activation::sigmoid, join_columns(gate, heads));
  if (narrow_) heads = gather_columns(heads, narrow_);
  context.visit(name_, ".heads", heads);
  return out_.forward(heads, context);
}

void MultiHeadAttention::visit(const char* of, Heads& heads, const Context& context) const {
  if (!context.probed(name_, of)) return;
  Tensor own = columns_of(heads.x, heads.column, heads.column + heads.heads * heads.width);
  context.visit(name_, of, own);
  heads = {own, 0, heads.heads, heads.width};
}

Tensor MultiHeadAttention::heads(const Heads& q, const Heads& k, const Heads& v, const KeyLayout& keys,
                                 const Context& context, const PairTables& pair) const {
  const AttentionOptions options{.mask = mask_,
                                 .visibility = self_ ? context.visibility : Visibility(),
                                 .term = self_ ? context.distance_bias : Tensor(),
                                 .scale = scale_,
                                 .dropout = context.dropout(spec_.dropout, site_),
                                 .cap = spec_.cap,
                                 .sinks = sinks_ ? sinks_->value : Tensor(),
                                 .padded_length = context.layout.padded_length,
                                 .pair = pair,
                                 .globals = self_ && mask_.pattern.any() ? context.globals : Indices()};
  const bool scores = context.probed(name_, ".scores"),
             probabilities = context.probed(name_, ".probabilities");
  if (!scores && !probabilities) return attention(q, k, v, context.layout.offsets, keys, options);
  AttentionVisitors visitors;
  if (scores) visitors.scores = context.head_visitor(name_, ".scores");
  if (probabilities) visitors.probabilities = context.head_visitor(name_, ".probabilities");
  return attention_unfused(q, k, v, context.layout.offsets, keys, options, visitors);
}

namespace {

constexpr uint32_t kGlobalSite = 6;      // random site within a layer
constexpr float kSharedEpsilon = 1e-6F;  // epsilon of the norm that turns queries into keys

Tensor ones(int64_t width) {
  return Tensor::of({width}, std::vector<float>(static_cast<size_t>(width), 1));
}

// Columns of keys and of values that self-attention projects itself.
int64_t own_key_columns(const AttentionSpec& a, bool shared) {
  return shared || a.reused_keys ? 0 : a.key_columns();
}
int64_t own_value_columns(const AttentionSpec& a) {
  return a.values_of_keys || a.reused_keys ? 0 : a.value_columns();
}

// The softmax does not cancel a key bias that is rotated, normalised or clipped with its keys.
IdleBias idle_bias(const AttentionSpec& spec, bool shared) {
  if (spec.reused_keys || spec.values_of_keys) return {};
  const int64_t keys = spec.gate_columns() + spec.query_columns();
  if (!spec.key_bias) return keys_at(keys, spec);
  if (shared || spec.clip > 0 || spec.rotary.width > 0 || spec.query_key_norm != QueryKeyNorm::none ||
      spec.relative.sees_key_bias())
    return {};
  return keys_at(keys, spec);
}

}  // namespace

SelfAttention::SelfAttention(Parameters& parameters, const std::string& name, int64_t width,
                             const AttentionSpec& spec, float norm_epsilon, Mask mask, int64_t layer,
                             uint32_t site, InitStd std)
    : shared_(spec.shares_query_key(layer)),
      keys_at_(spec.heads * spec.d_qk),
      values_at_(keys_at_ + (shared_ ? 0 : spec.kv_heads * spec.d_qk)),
      qkv_(parameters, name + ".qkv", width,
           spec.gate_columns() + spec.query_columns() + own_key_columns(spec, shared_) +
               own_value_columns(spec),
           spec.bias, std.inner, idle_bias(spec, shared_)),
      spread_(spread_heads(spec, {HeadPart::query, HeadPart::key, HeadPart::value})),
      ones_(ones(spec.d_qk)),
      unit_values_(spec.value_norm ? ones(spec.d_vo) : Tensor()),
      norm_epsilon_(norm_epsilon),
      attention_(parameters, name, width, spec, mask, true, layer, site, std),
      hashing_(hashing_of_layer(spec, layer)),
      relative_(spec.relative.on()
                    ? std::make_unique<RelativeEncoding>(
                          parameters, name, spec.relative,
                          RelativeEncoding::Shape{width, spec.heads, spec.kv_heads, spec.d_qk, spec.bias,
                                                  spec.key_bias, mask.is_causal(), attention_.scale()},
                          std.inner)
                    : nullptr) {
  if (!hashing_.buckets.empty()) {
    rotations_ =
        &parameters.add(name + ".rotations", {spec.heads, spec.d_qk, hashing_.rounds, hashing_.columns()},
                        ParameterKind::vector, {.kind = Initializer::Kind::normal, .std = 1});
    rotations_->learned = false;
  }
  if (spec.global_projections)
    global_ = std::make_unique<GlobalAttention>(parameters, name + ".global", width, spec, std);
  if (spec.query_key_norm == QueryKeyNorm::none || spec.query_key_norm == QueryKeyNorm::unit_rotated) return;
  const bool of_each =
      spec.query_key_norm == QueryKeyNorm::whole || spec.query_key_norm == QueryKeyNorm::layer_heads;
  const auto norm = [&](const std::string& of, int64_t heads) {
    const auto weights = [&](const char* kind, Initializer::Kind start) {
      return &parameters.add(of + kind, {of_each ? heads * spec.d_qk : spec.d_qk}, ParameterKind::vector,
                             {start});
    };
    const bool plus_one = spec.query_key_norm == QueryKeyNorm::heads_plus_one;
    HeadNorm n{weights(".gamma", plus_one ? Initializer::Kind::zeros : Initializer::Kind::ones)};
    if (spec.query_key_norm == QueryKeyNorm::layer) n.beta = weights(".beta", Initializer::Kind::zeros);
    return n;
  };
  query_norm_ = norm(name + ".query_norm", spec.heads);
  if (!spec.reused_keys) key_norm_ = norm(name + ".key_norm", spec.kv_heads);
}

SelfAttention::~SelfAttention() = default;

Tensor SelfAttention::forward(const Tensor& x, const Context& context) const {
  const AttentionSpec& a = attention_.spec();
  SegmentState* segment = context.segment_states ? &context.segment_states->of(this) : nullptr;
  // The queries of remembered rows are not needed, but one product is still faster than two.
  Tensor qkv = qkv_.forward(segment ? segment->extended(x, context.layout) : x, context);
  Tensor gate;
  if (a.gated) {
    const int64_t columns = a.gate_columns();
    gate = columns_of(qkv, 0, columns);
    if (segment) gate = select_rows(gate, context.own_rows);
    qkv = columns_of(qkv, columns, qkv.width());
  }
  if (a.clip > 0) qkv = clipped(qkv, a.clip);
  if (spread_) qkv = gather_columns(qkv, spread_);
  Heads v{qkv, values_at_, a.kv_heads, a.d_vo};
  const bool of_keys = a.values_of_keys && !a.reused_keys;
  if (of_keys) v = {columns_of(qkv, keys_at_, values_at_), 0, a.kv_heads, a.d_vo};
  const auto norm = [&] {
    qkv = normed(qkv, 0, a.heads, query_norm_);
    if (!a.reused_keys) qkv = normed(qkv, keys_at_, a.kv_heads, key_norm_);
  };
  const bool after =
      a.query_key_norm == QueryKeyNorm::heads_rotated || a.query_key_norm == QueryKeyNorm::unit_rotated;
  if (a.query_key_norm != QueryKeyNorm::none && !after) norm();
  if (a.rotary.width > 0)
    qkv = rotary(qkv,
                 a.heads + (shared_ || a.reused_keys ? 0
                            : a.rotary.values        ? 2 * a.kv_heads
                                                     : a.kv_heads),
                 a.d_qk, a.rotary.layout, context.rotation);
  if (after) norm();
  if (!of_keys) v.x = qkv;
  if (a.value_norm && !a.reused_keys)
    v.x = group_rms_norm(v.x, {v.column, a.kv_heads, a.d_vo}, unit_values_, norm_epsilon_);
  Tensor queries = qkv;
  if (segment) queries = select_rows(columns_of(qkv, 0, keys_at_), context.own_rows);
  if (a.query_growth != 0)
    queries = scaled_rows(segment ? queries : columns_of(qkv, 0, keys_at_), {}, context.query_factors);
  Heads q{queries, 0, a.heads, a.d_qk};
  attention_.visit(".queries", q, context);
  if (a.reused_keys) return of_reused_keys(q, gate, context);
  Heads k = shared_ ? keys_of_queries(qkv) : Heads{qkv, keys_at_, a.kv_heads, a.d_qk};
  attention_.visit(".keys", k, context);
  attention_.visit(".values", v, context);
  if (hashing_.chunk > 0) return attention_.project(hashed(q, k, v, context), context, gate);
  KeyValueState* memory = state(context);
  if (context.left_keys != nullptr && memory != nullptr) {
    context.left_keys->memory = memory;
  } else if (context.left_keys != nullptr) {
    k = {columns_of(k.x, k.column, k.column + k.heads * k.width), 0, k.heads, k.width};
    v = {columns_of(v.x, v.column, v.column + v.heads * v.width), 0, v.heads, v.width};
    *context.left_keys = {k.x, v.x};
  }
  const auto pair = [&](const Heads& keys) {
    return relative_ ? relative_->tables(q, keys, qkv_, context) : PairTables();
  };
  if (memory == nullptr) {
    const PairTables tables = pair(k);
    const Layout& seen = segment ? context.seen : context.layout;
    Tensor heads = attention_.heads(q, k, v, KeyLayout::contiguous(seen.offsets), context, tables);
    if (global_)
      heads = global_->replace(heads, x, attention_.mask().pattern.global, attention_.scale(),
                               attention_.site() + kGlobalSite, context);
    return attention_.project(heads, context, gate);
  }
  memory->append(k, v, context.layout.offsets);
  const PairTables tables = pair(memory->keys());
  return attention_.forward(q, memory->keys(), memory->values(), memory->layout(), context, tables, gate);
}

Tensor SelfAttention::of_reused_keys(const Heads& q, const Tensor& gate, const Context& context) const {
  check(context.reused_keys != nullptr, "{}: no layer left keys to reuse", attention_.name());
  const AttentionSpec& a = attention_.spec();
  const auto& [k, v, memory] = *context.reused_keys;
  if (memory != nullptr)
    return attention_.forward(q, memory->keys(), memory->values(), memory->layout(), context, {}, gate);
  return attention_.forward(q, {k, 0, a.kv_heads, a.d_qk}, {v, 0, a.kv_heads, a.d_vo},
                            KeyLayout::contiguous(context.layout.offsets), context, {}, gate);
}

Tensor SelfAttention::normed(const Tensor& qkv, int64_t column, int64_t heads, const HeadNorm& norm) const {
  const AttentionSpec& a = attention_.spec();
  const bool whole = a.query_key_norm == QueryKeyNorm::whole;
  const ColumnGroups at{column, whole ? 1 : heads, whole ? heads * a.d_qk : a.d_qk};
  if (a.query_key_norm == QueryKeyNorm::heads_plus_one)
    return group_rms_norm(qkv, at, add(norm.gamma->value, ones_), norm_epsilon_);
  if (a.query_key_norm == QueryKeyNorm::unit_rotated) return group_rms_norm(qkv, at, ones_, norm_epsilon_);
  if (whole || a.query_key_norm == QueryKeyNorm::heads || a.query_key_norm == QueryKeyNorm::heads_rotated)
    return group_rms_norm(qkv, at, norm.gamma->value, norm_epsilon_);
  return group_layer_norm(qkv, at, norm.gamma->value, norm.beta ? norm.beta->value : Tensor(), norm_epsilon_);
}

Heads SelfAttention::keys_of_queries(const Tensor& qkv) const {
  const AttentionSpec& a = attention_.spec();
  return {group_rms_norm(columns_of(qkv, 0, a.heads * a.d_qk), {0, a.heads, a.d_qk}, ones_, kSharedEpsilon),
          0, a.heads, a.d_qk};
}

Tensor SelfAttention::hashed(const Heads& q, const Heads& k, const Heads& v, const Context& context) const {
  const AttentionSpec& a = attention_.spec();
  check(!context.visibility.defined(), "{}: attention in chunks does not go with a mask of pairs of tokens",
        attention_.name());
  check(state(context) == nullptr,
        "{}: attention in chunks reads a text as a whole, without a memory of earlier "
        "tokens",
        attention_.name());
  const auto own = [](const Heads& x) { return columns_of(x.x, x.column, x.column + x.heads * x.width); };
  const Tensor queries = own(q), keys = own(k),
               rotations = rotations_ != nullptr ? rotations_->value.detach() : Tensor();
  const HashedAttentionOptions options{.order = hashing_,
                                       .heads = a.heads,
                                       .causal = attention_.mask().is_causal(),
                                       .own_last = rotations_ != nullptr,
                                       .scale = attention_.scale(),
                                       .dropout = context.dropout(a.dropout, attention_.site()),
                                       .padded_length = context.layout.padded_length};
  for (const auto& [of, view] : {std::pair(".probabilities", HashedView::together),
                                 {".chunks", HashedView::by_chunk},
                                 {".buckets", HashedView::buckets}})
    if (context.probed(attention_.name(), of))
      visit_hashed_probabilities(queries, keys, rotations, context.layout.offsets, options, view,
                                 context.head_visitor(attention_.name(), of));
  return hashed_attention(queries, keys, own(v), rotations, context.layout.offsets, options);
}

std::unique_ptr<KeyValueState> SelfAttention::make_state(int64_t sequences) const {
  const AttentionSpec& a = attention_.spec();
  return std::make_unique<KeyValueState>(sequences, a.kv_heads, a.d_qk, a.d_vo);
}

CrossAttention::CrossAttention(Parameters& parameters, const std::string& name, int64_t width, int64_t source,
                               const AttentionSpec& spec, int64_t layer, uint32_t site, InitStd std)
    : q_(parameters, name + ".q", width, spec.query_columns(), spec.bias, std.inner),
      kv_(parameters, name + ".kv", source, spec.key_columns() + spec.value_columns(), spec.bias, std.inner,
          spec.cross_linear && spec.key_bias ? IdleBias() : keys_at(0, spec)),
      spread_q_(spread_heads(spec, {HeadPart::query})),
      spread_kv_(spread_heads(spec, {HeadPart::key, HeadPart::value})),
      attention_(parameters, name, width, spec, Mask::full(), false, layer, site, std) {}

Tensor CrossAttention::forward(const Tensor& x, const Context& context) const {
  const AttentionSpec& a = attention_.spec();
  Tensor projected = q_.forward(x, context);
  if (spread_q_) projected = gather_columns(projected, spread_q_);
  Heads q{projected, 0, a.heads, a.d_qk};
  attention_.visit(".queries", q, context);
  if (a.cross_linear) return linearly(q, context);
  SourceState* memory = state(context);
  if (memory != nullptr && memory->filled())
    return attention_.forward(q, memory->keys(), memory->values(), memory->layout(), context);
  const auto [k, v] = of_source(context);
  const std::vector<int32_t>& offsets = context.source_layout.offsets;
  if (memory != nullptr) memory->append(k, v, offsets);
  return attention_.forward(q, k, v, KeyLayout::contiguous(offsets), context);
}

std::pair<Heads, Heads> CrossAttention::of_source(const Context& context) const {
  const AttentionSpec& a = attention_.spec();
  check(context.source.defined(), "{}: there is no source to attend to", attention_.name());
  const auto projected_source = [&](const Tensor& source) {
    const Tensor kv = kv_.forward(source, context, context.source_layout);
    return spread_kv_ ? gather_columns(kv, spread_kv_) : kv;
  };
  const Tensor of_keys = projected_source(context.source),
               of_values =
                   context.source_values.defined() ? projected_source(context.source_values) : of_keys;
  Heads k{of_keys, 0, a.kv_heads, a.d_qk}, v{of_values, a.kv_heads * a.d_qk, a.kv_heads, a.d_vo};
  attention_.visit(".keys", k, context);
  attention_.visit(".values", v, context);
  return {k, v};
}

Tensor CrossAttention::linearly(const Heads& q, const Context& context) const {
  constexpr float kEpsilon = 1e-6F;
  const int64_t heads = attention_.spec().heads;
  const auto own = [](const Heads& x) { return columns_of(x.x, x.column, x.column + x.heads * x.width); };
  const auto features = [&](const Heads& x) { return feature_map(FeatureMap::elu, own(x), heads); };
  FastWeightsInput in{
      .heads = heads, .key_heads = heads, .q = features(q), .k = {}, .v = {}, .epsilon = kEpsilon};
  const std::vector<int32_t>& offsets = context.layout.offsets;
  SourceState* memory = state(context);
  if (memory != nullptr && memory->filled()) {
    in.k = Tensor::empty({0, in.q.width()}, in.q.dtype());
    in.v = Tensor::empty({0, heads * attention_.spec().d_vo}, in.q.dtype());
    const KeyLayout layout = memory->layout();
    const std::vector<int32_t> rows(layout.blocks.begin(), layout.blocks.end());
    const Tensor first =
        join_columns(select_rows(own(memory->keys()), rows), select_rows(own(memory->values()), rows));
    return attention_.project(
        fast_weights(in, first, offsets, std::vector<int32_t>(offsets.size(), 0), false).y, context);
  }
  const auto [k, v] = of_source(context);
  in.k = features(k);
  in.v = own(v);
  const FastWeightsResult r = fast_weights(in, {}, offsets, context.source_layout.offsets, false);
  if (memory != nullptr) {
    const int64_t half = r.state.width() / 2;
    std::vector<int32_t> each(offsets.size());
    std::iota(each.begin(), each.end(), 0);
    memory->append({r.state, 0, 1, half}, {r.state, half, 1, r.state.width() - half}, each);
  }
  return attention_.project(r.y, context);
}

std::unique_ptr<SourceState> CrossAttention::make_state(int64_t sequences) const {
  const AttentionSpec& a = attention_.spec();
  if (!a.cross_linear) return std::make_unique<SourceState>(sequences, a.kv_heads, a.d_qk, a.d_vo);
  const int64_t row = a.heads * a.d_qk * (a.d_vo + 1);
  return std::make_unique<SourceState>(sequences, 1, row / 2, row - row / 2);
}

}  // namespace qkv
