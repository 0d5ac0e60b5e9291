#include "qkv/models/mixers/attention.h"
#include "qkv/models/mixers/mixer_place.h"
#include "qkv/models/spec.h"
#include "qkv/nn/attention.h"

namespace qkv {
namespace {

// Numbers of relative attention's tables, per token.
int64_t table_columns(const ModelSpec& s, bool causal) {
  const RelativeSpec& r = s.attention.relative;
  if (!r.on()) return 0;
  const int64_t rows = r.rows(causal, s.context - 1).rows();
  const int64_t tables = r.kind == RelativeAttention::shaw_both      ? 2
                         : r.kind == RelativeAttention::disentangled ? r.terms() - 1
                                                                     : 1;
  return s.attention.heads * (tables * rows + (r.segments ? 2 : 0));
}

MixerCost softmax_cost(const ModelSpec& spec) {
  const AttentionSpec& a = spec.attention;
  const int64_t qkv = (a.heads + a.kv_heads) * a.d_qk + a.kv_heads * a.d_vo, out = a.heads * a.d_vo;
  return {.projected = qkv,
          .out = out,
          .kept_f32 = a.heads,  // the softmax's denominators
          .multiplications = spec.width * qkv + out * spec.width,
          .scores = a.heads * a.d_qk,
          .per_key = a.heads * (a.d_qk + a.d_vo),
          .remembered = a.kv_heads * (a.d_qk + a.d_vo)};
}

}  // namespace

void AttentionMixer::check(const ModelSpec& /*spec*/) const {}

std::unique_ptr<Sublayer> AttentionMixer::make(const MixerPlace& p) const {
  return std::make_unique<SelfAttention>(p.parameters, p.name, p.spec.width, p.spec.attention,
                                         p.spec.norm_epsilon, p.mask, p.layer, p.site, p.std);
}

MixerCost cross_attention_cost(const ModelSpec& spec) {
  const AttentionSpec& a = spec.attention;
  if (!a.cross_linear) return softmax_cost(spec);
  const int64_t qkv = (a.heads + a.kv_heads) * a.d_qk + a.kv_heads * a.d_vo, out = a.heads * a.d_vo,
                features = 2 * a.heads * a.d_qk, state = a.heads * a.d_qk * (a.d_vo + 1);
  return {.projected = qkv + features,
          .out = out,
          .kept_f32 = state / 32,  // states, one for so many steps
          .multiplications = spec.width * qkv + out * spec.width + 2 * state};
}

MixerCost AttentionMixer::cost(const ModelSpec& spec, bool causal) const {
  const AttentionSpec& a = spec.attention;
  MixerCost cost = softmax_cost(spec);
  // Keys and values of another layer, and values that are keys, are not projected.
  const int64_t others = a.reused_keys      ? a.key_columns() + a.value_columns()
                         : a.values_of_keys ? a.value_columns()
                                            : 0;
  cost.multiplications -= spec.width * others;
  if (a.reused_keys) {
    cost.projected -= others;
    cost.remembered = 0;
  }
  const int64_t qkv = cost.projected;
  if (a.gated) {  // with the rest and apart, and joined with what it is the gate of
    cost.projected += qkv + 4 * a.gate_columns();
    cost.multiplications += spec.width * a.gate_columns();
  }
  // Columns that are turned, cut off, spread or normalised are kept beside those that they are made of.
  if (a.rotary.width > 0) cost.projected += qkv;
  if (a.clip > 0) cost.projected += qkv;
  if (!a.head_sizes.empty()) cost.projected += 4 * a.output_columns();
  if (a.query_key_norm != QueryKeyNorm::none) cost.projected += 2 * qkv;
  if (a.value_norm && !a.reused_keys) cost.projected += a.value_columns();
  if (a.relative.kind == RelativeAttention::transformer_xl)
    cost.projected += (a.relative.segments ? 4 : 3) * a.heads * a.d_qk;
  if (a.global_projections) cost.projected += qkv + cost.out;
  cost.again_f32 = table_columns(spec, causal);
  cost.kept_f32 += cost.again_f32;
  return cost;
}

}  // namespace qkv
