// "model_type": "qkv": a spec that no other family expresses, written out in full under the engine's names.

#include "qkv/base/json_value.h"
#include "qkv/io/family_parts.h"
#include "qkv/models/transformer.h"

namespace qkv {
namespace {

constexpr int64_t kMost = kMostOfConfig;

// 1 had pre-LN decoders with learned positions only; 2 no other output than tokens, and none of T5's pieces;
// 3 no recurrences, and no order but the stack's; 4 one vocabulary, and no variations of blocks; 5 no
// experts, latents, caps and sinks, and windows for patterns; 6 no relative attention, unit embeddings,
// global projections, grids and encoders of another shape; 7 heads of one size, no
// features; 8 no memory; 9 no axial positions and no keys that are the queries; 10 no clips; 11 no factors of
// pairs, first positions, and activations and experts of one part alone; 12 no norm of the stream, and a norm
// at the end wherever sums are not normalised.
constexpr int64_t kVersion = 13;

ModelSpec read_config(const JsonField& c) {
  const JsonField q = c["qkv"];
  const auto version = q["version"].integer(0, kMost);
  check(version >= 1 && version <= kVersion, "{}: version {} is not supported, expected 1 to {}", q.place(),
        version, kVersion);
  ModelSpec s;
  if (version > 1) {
    s.architecture = architecture_from_name(q["architecture"].string());
    s.encoder_layers = q["encoder_layers"].integer(0, kMost);
    s.norm_placement = norm_placement_from_name(q["norm_placement"].string());
    s.positions = positions_from_name(q["positions"].string());
    s.embedding_scaled = q["embedding_scaled"].boolean();
    s.embedding_norm = q["embedding_norm"].boolean();
    s.segments = q["segments"].integer(0, kMost);
    s.head_width = q["head_width"].integer(0, kMost);
    s.unembedding_bias = q["unembedding_bias"].boolean();
  }
  if (version > 2) {
    s.output = output_from_name(q["output"].string());
    const JsonField labels = q["labels"];
    for (size_t i = 0; i < labels.size(); ++i) s.labels.push_back(labels.at(i).string());
    s.pooling = pooling_from_name(q["pooling"].string());
    s.pooler = q["pooler"].boolean();
    s.head_dropout = static_cast<float>(q["head_dropout"].number());
    s.gated = q["gated"].boolean();
    s.feed_forward_bias = q["feed_forward_bias"].boolean();
    s.normalization = normalization_from_name(q["normalization"].string());
    s.relative_buckets = q["relative_buckets"].integer(0, kMost);
    s.relative_distance = q["relative_distance"].integer(0, kMost);
    s.stacks_apart = q["stacks_apart"].boolean();
    s.unembedding_scaled = q["unembedding_scaled"].boolean();
  }
  if (version > 3) {
    s.order = order_from_name(q["order"].string());
    s.recurrence.encoder = cell_from_name(q["encoder"].string());
    s.recurrence.decoder = cell_from_name(q["decoder"].string());
    s.recurrence.bidirectional = q["bidirectional"].boolean();
    s.recurrence.attention = source_attention_from_name(q["source_attention"].string());
    s.recurrence.window = q["local_window"].integer(0, kMost);
    s.source_reversed = q["reverse_source"].boolean();
  }
  s.attention.out_bias = q["attention_bias"].boolean();
  if (version > 4) {
    s.source_vocab_size = q["source_vocab_size"].integer(0, kMost);
    s.embedding_width = q["embedding_width"].integer(0, kMost);
    s.embedding_projected_last = q["embedding_projected_last"].boolean();
    s.layer_groups = q["layer_groups"].integer(0, kMost);
    s.branches = branches_from_name(q["branches"].string());
    s.embedding_multiplier = static_cast<float>(q["embedding_multiplier"].number());
    s.residual_multiplier = static_cast<float>(q["residual_multiplier"].number());
    s.logit_multiplier = static_cast<float>(q["logit_multiplier"].number());
    s.attention.out_bias = q["attention_out_bias"].boolean();
    s.attention.scale = static_cast<float>(q["attention_scale"].number());
    s.attention.query_key_norm = query_key_norm_from_name(q["query_key_norm"].string());
    if (version == 5)
      for (const int64_t w : q["windows"].integers(0, kMost)) s.attention.patterns.push_back({.window = w});
    RotarySpec& r = s.attention.rotary;
    r.width = q["rotary_width"].integer(0, kMost);
    r.layout = rotary_layout_from_name(q["rotary_layout"].string());
    r.base = q["rotary_base"].number();
    r.scaling = rotary_scaling_from_name(q["rotary_scaling"].string());
    r.factor = q["rotary_factor"].number();
    r.original_context = q["rotary_original_context"].integer(0, kMost);
    r.low = q["rotary_low"].number();
    r.high = q["rotary_high"].number();
    r.magnitude = q["rotary_magnitude"].number();
  }
  if (version > 5) {
    const JsonField patterns = q["patterns"];
    for (size_t i = 0; i < patterns.size(); ++i)
      s.attention.patterns.push_back(pattern_from_text(patterns.at(i).string()));
    s.pooler_activation = activation_from_name(q["pooler_activation"].string());
    s.attention.latent = q["kv_latent"].integer(0, kMost);
    s.attention.query_latent = q["query_latent"].integer(0, kMost);
    s.attention.cap = static_cast<float>(q["attention_cap"].number());
    s.attention.sinks = q["attention_sinks"].boolean();
    s.logit_cap = static_cast<float>(q["logit_cap"].number());
    s.hidden_layers = q["hidden_layers"].integer(0, kMost);
    ExpertsSpec& e = s.experts;
    e.count = q["experts"].integer(0, kMost);
    e.chosen = q["experts_chosen"].integer(0, kMost);
    e.hidden = q["expert_hidden"].integer(0, kMost);
    e.first = q["expert_first"].integer(0, kMost);
    e.every = q["expert_every"].integer(0, kMost);
    e.score = router_score_from_name(q["router_score"].string());
    e.renormalized = q["experts_renormalized"].boolean();
    e.scale = static_cast<float>(q["expert_scale"].number());
    e.choice_bias = q["expert_choice_bias"].boolean();
    e.groups = q["expert_groups"].integer(0, kMost);
    e.chosen_groups = q["expert_groups_chosen"].integer(0, kMost);
    e.shared_hidden = q["shared_hidden"].integer(0, kMost);
    e.shared_gated = q["shared_gated"].boolean();
    e.balance = static_cast<float>(q["expert_balance"].number());
    e.capacity = q["expert_capacity"].integer(0, kMost);
  }
  if (version > 6) {
    RelativeSpec& r = s.attention.relative;
    r.kind = relative_attention_from_name(q["relative_attention"].string());
    r.distance = q["relative_attention_distance"].integer(0, kMost);
    r.buckets = q["relative_attention_buckets"].integer(0, kMost);
    r.by_content = q["relative_by_content"].boolean();
    r.by_position = q["relative_by_position"].boolean();
    r.shared_projections = q["relative_shared"].boolean();
    r.normed = q["relative_norm"].boolean();
    r.segments = q["relative_segments"].boolean();
    s.embedding_unit = q["embedding_unit"].boolean();
    s.grid = q["grid"].integer(0, kMost);
    s.encoder.width = q["encoder_width"].integer(0, kMost);
    s.encoder.heads = q["encoder_heads"].integer(0, kMost);
    s.encoder.hidden = q["encoder_hidden"].integer(0, kMost);
    s.attention.global_projections = q["global_projections"].boolean();
    s.experts.choice_rate = static_cast<float>(q["expert_choice_rate"].number());
  }
  if (version > 7) {
    s.attention.head_sizes = q["head_sizes"].integers(0, kMost);
    s.encoder.context = q["encoder_context"].integer(0, kMost);
    FeatureSpec& f = s.features;
    f.kind = feature_kind_from_name(q["features"].string());
    f.channels = q["feature_channels"].integer(0, kMost);
    f.patch = q["feature_patch"].integer(0, kMost);
    f.image = q["feature_image"].integer(0, kMost);
    f.bias = q["feature_bias"].boolean();
    f.distilled = q["distilled"].boolean();
  }
  if (version > 8) s.memory = q["memory"].integer(0, kMost);
  if (version > 9) {
    s.axial_width = q["axial_width"].integer(0, kMost);
    s.attention.shared_query_key = q["shared_query_key"].integers(0, 1);
    s.attention.hashed_beyond = q["hashed_beyond"].integer(0, kMost);
  }
  if (version > 10) s.attention.clip = static_cast<float>(q["attention_clip"].number());
  if (version > 11) {
    s.first_position = q["first_position"].integer(0, kMost);
    s.attention.rotary.short_factors = q["rotary_short_factors"].numbers();
    s.attention.rotary.long_factors = q["rotary_long_factors"].numbers();
    s.encoder.expert_first = q["encoder_expert_first"].integer(0, kMost);
    s.encoder.expert_every = q["encoder_expert_every"].integer(0, kMost);
    s.classifier_bias = q["classifier_bias"].boolean();
  }
  if (version > 12) s.final_norm = q["final_norm"].boolean();
  s.vocab_size = q["vocab_size"].integer(0, kMost);
  s.context = q["context"].integer(0, kMost);
  s.width = q["width"].integer(0, kMost);
  s.layers = q["layers"].integer(0, kMost);
  s.attention.heads = q["heads"].integer(0, kMost);
  s.attention.kv_heads = q["kv_heads"].integer(0, kMost);
  s.attention.d_qk = q["d_qk"].integer(0, kMost);
  s.attention.d_vo = q["d_vo"].integer(0, kMost);
  s.attention.bias = q["attention_bias"].boolean();
  s.attention.scaled = q["attention_scaled"].boolean();
  s.attention.scaled_by_layer = q["attention_scaled_by_layer"].boolean();
  s.attention.dropout = static_cast<float>(q["attention_dropout"].number());
  s.hidden = q["hidden"].integer(0, kMost);
  s.activation = activation_from_name(q["activation"].string());
  if (version > 11)
    if (const Activation head = activation_from_name(q["head_activation"].string()); head != s.activation)
      s.head_activation = head;
  s.norm_epsilon = static_cast<float>(q["norm_epsilon"].number());
  s.tied = q["tied"].boolean();
  s.init_std = static_cast<float>(q["init_std"].number());
  s.embedding_dropout = static_cast<float>(q["embedding_dropout"].number());
  s.residual_dropout = static_cast<float>(q["residual_dropout"].number());
  return s;
}

OrderedJson write_config(const ModelSpec& s) {
  const ExpertsSpec& e = s.experts;
  const RotarySpec& r = s.attention.rotary;
  const RelativeSpec& relative = s.attention.relative;
  return {{"model_type", "qkv"},
          {"qkv",
           {{"version", kVersion},
            {"architecture", name_of(s.architecture)},
            {"encoder_layers", s.encoder_layers},
            {"norm_placement", name_of(s.norm_placement)},
            {"final_norm", s.final_norm},
            {"positions", name_of(s.positions)},
            {"embedding_scaled", s.embedding_scaled},
            {"embedding_norm", s.embedding_norm},
            {"segments", s.segments},
            {"head_width", s.head_width},
            {"unembedding_bias", s.unembedding_bias},
            {"order", name_of(s.order)},
            {"output", name_of(s.output)},
            {"labels", s.labels},
            {"pooling", name_of(s.pooling)},
            {"pooler", s.pooler},
            {"head_dropout", decimal(s.head_dropout)},
            {"gated", s.gated},
            {"feed_forward_bias", s.feed_forward_bias},
            {"normalization", name_of(s.normalization)},
            {"relative_buckets", s.relative_buckets},
            {"relative_distance", s.relative_distance},
            {"stacks_apart", s.stacks_apart},
            {"unembedding_scaled", s.unembedding_scaled},
            {"encoder", name_of(s.recurrence.encoder)},
            {"decoder", name_of(s.recurrence.decoder)},
            {"bidirectional", s.recurrence.bidirectional},
            {"source_attention", name_of(s.recurrence.attention)},
            {"local_window", s.recurrence.window},
            {"reverse_source", s.source_reversed},
            {"vocab_size", s.vocab_size},
            {"source_vocab_size", s.source_vocab_size},
            {"embedding_width", s.embedding_width},
            {"embedding_projected_last", s.embedding_projected_last},
            {"layer_groups", s.layer_groups},
            {"branches", name_of(s.branches)},
            {"embedding_multiplier", decimal(s.embedding_multiplier)},
            {"residual_multiplier", decimal(s.residual_multiplier)},
            {"logit_multiplier", decimal(s.logit_multiplier)},
            {"attention_out_bias", s.attention.out_bias},
            {"attention_scale", decimal(s.attention.scale)},
            {"query_key_norm", name_of(s.attention.query_key_norm)},
            {"patterns", texts_of(s.attention.patterns)},
            {"rotary_width", r.width},
            {"rotary_layout", name_of(r.layout)},
            {"rotary_base", r.base},
            {"rotary_scaling", name_of(r.scaling)},
            {"rotary_factor", r.factor},
            {"rotary_original_context", r.original_context},
            {"rotary_low", r.low},
            {"rotary_high", r.high},
            {"rotary_magnitude", r.magnitude},
            {"rotary_short_factors", r.short_factors},
            {"rotary_long_factors", r.long_factors},
            {"first_position", s.first_position},
            {"relative_attention", name_of(relative.kind)},
            {"relative_attention_distance", relative.distance},
            {"relative_attention_buckets", relative.buckets},
            {"relative_by_content", relative.by_content},
            {"relative_by_position", relative.by_position},
            {"relative_shared", relative.shared_projections},
            {"relative_norm", relative.normed},
            {"relative_segments", relative.segments},
            {"embedding_unit", s.embedding_unit},
            {"grid", s.grid},
            {"axial_width", s.axial_width},
            {"shared_query_key", s.attention.shared_query_key},
            {"hashed_beyond", s.attention.hashed_beyond},
            {"encoder_width", s.encoder.width},
            {"encoder_heads", s.encoder.heads},
            {"encoder_hidden", s.encoder.hidden},
            {"encoder_expert_first", s.encoder.expert_first},
            {"encoder_expert_every", s.encoder.expert_every},
            {"global_projections", s.attention.global_projections},
            {"pooler_activation", name_of(s.pooler_activation)},
            {"classifier_bias", s.classifier_bias},
            {"head_activation", name_of(s.activation_of_head())},
            {"kv_latent", s.attention.latent},
            {"query_latent", s.attention.query_latent},
            {"attention_clip", decimal(s.attention.clip)},
            {"attention_cap", decimal(s.attention.cap)},
            {"attention_sinks", s.attention.sinks},
            {"logit_cap", decimal(s.logit_cap)},
            {"hidden_layers", s.hidden_layers},
            {"experts", e.count},
            {"experts_chosen", e.chosen},
            {"expert_hidden", e.hidden},
            {"expert_first", e.first},
            {"expert_every", e.every},
            {"router_score", name_of(e.score)},
            {"experts_renormalized", e.renormalized},
            {"expert_scale", decimal(e.scale)},
            {"expert_choice_bias", e.choice_bias},
            {"expert_choice_rate", decimal(e.choice_rate)},
            {"expert_groups", e.groups},
            {"expert_groups_chosen", e.chosen_groups},
            {"shared_hidden", e.shared_hidden},
            {"shared_gated", e.shared_gated},
            {"expert_balance", decimal(e.balance)},
            {"expert_capacity", e.capacity},
            {"context", s.context},
            {"width", s.width},
            {"layers", s.layers},
            {"heads", s.attention.heads},
            {"kv_heads", s.attention.kv_heads},
            {"d_qk", s.attention.d_qk},
            {"d_vo", s.attention.d_vo},
            {"head_sizes", s.attention.head_sizes},
            {"memory", s.memory},
            {"encoder_context", s.encoder.context},
            {"features", name_of(s.features.kind)},
            {"feature_channels", s.features.channels},
            {"feature_patch", s.features.patch},
            {"feature_image", s.features.image},
            {"feature_bias", s.features.bias},
            {"distilled", s.features.distilled},
            {"attention_bias", s.attention.bias},
            {"attention_scaled", s.attention.scaled},
            {"attention_scaled_by_layer", s.attention.scaled_by_layer},
            {"attention_dropout", decimal(s.attention.dropout)},
            {"hidden", s.hidden},
            {"activation", name_of(s.activation)},
            {"norm_epsilon", decimal(s.norm_epsilon)},
            {"tied", s.tied},
            {"init_std", decimal(s.init_std)},
            {"embedding_dropout", decimal(s.embedding_dropout)},
            {"residual_dropout", decimal(s.residual_dropout)}}}};
}

std::vector<WeightName> weights(const ModelSpec& s) {
  std::vector<WeightName> names;
  const Transformer model(s);
  for (const Parameter& p : model.parameters().all()) names.push_back({p.name, p.name});
  return names;
}

}  // namespace

const Family& native_family() {
  static const Family family = {"qkv",
                                read_config,
                                write_config,
                                [](const ModelSpec&) { return true; },
                                weights,
                                "",
                                [](const ModelSpec&, const std::string&) { return false; }};
  return family;
}

}  // namespace qkv
