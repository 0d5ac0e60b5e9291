// The variations that a random model has, and whether the seeds draw each of them.
#include <algorithm>
#include <map>
#include <string>

#include "tests/formal/varied_case.h"

namespace qkv {

std::map<std::string, bool> variations_of(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  const ExpertsSpec& x = s.experts;
  const bool decoder = s.architecture == Architecture::decoder,
             encoder = s.architecture == Architecture::encoder, two = !decoder && !encoder;
  std::map<std::string, bool> has;
  const auto each = [&]<typename E>(const char* field, E value, std::initializer_list<E> never) {
    for (const std::string& name : names_of<E>())
      if (std::ranges::find(never, from_name<E>(name)) == never.end())
        has[fmt::format("{} {}", field, name)] = name_of(value) == name;
  };
  each("positions", s.positions, {});
  each("relative_attention", a.relative.kind, {});
  each("norm", s.norm_placement, {});
  each("normalization", s.normalization, {Normalization::batch});
  each("query_key_norm", a.query_key_norm, {});
  if (!two) each("branches", s.branches, {});
  for (const Positions p :
       {Positions::relative, Positions::toeplitz, Positions::alibi, Positions::alibi_signed})
    has[fmt::format("distance_bias {}", name_of(p))] = s.distance_bias == p;
  has["relative_by_layer"] = s.relative_by_layer;
  for (const Activation f :
       {Activation::sigmoid, Activation::identity, Activation::gelu_quick, Activation::xielu})
    has[fmt::format("activation {}", name_of(f))] = s.activation == f;
  has["query_growth"] = a.query_growth != 0;
  has["rotary_values"] = a.rotary.values;
  has["position_base"] = s.position_base != 10000;
  has["rotary_turned"] = a.rotary.turned > 0;
  has["value_norm"] = a.value_norm;
  has["values_of_keys"] = a.values_of_keys;
  has["attention_gate"] = a.gated;
  has["reused_keys"] =
      std::ranges::any_of(s.kinds, [](const BlockKind& k) { return k.block.attention.reused_keys; });
  has["block_scaled"] = s.block_scaled;
  if (!two) has["layer_input_width"] = s.layer_input_width > 0;
  has["no attention_key_bias"] = !a.key_bias;
  has["no mixer_norm"] = !s.mixer_norm;
  has["gate_limit"] = s.gate_limit > 0;
  has["router_bias"] = x.router_bias;
  has["expert_bias"] = x.bias;
  has["expert_input_weighted"] = x.input_weighted;
  has["no head_bias"] = !s.head_bias;
  if (two) has["encoder_layer_kinds"] = !s.encoder_layer_kinds.empty();
  has["patterns"] = !a.patterns.empty();
  has["shared_query_key"] = !a.shared_query_key.empty();
  if (!two) has["hashed attention"] = a.hashing.chunk > 0;
  if (!two) has["hash_same_bucket"] = a.hashing.same_bucket;
  if (two) has["cross_linear"] = a.cross_linear;
  if (encoder) has["ring"] = a.ring.chunk > 0;
  has["head_sizes"] = !a.head_sizes.empty();
  has["kv_heads"] = a.kv_heads < a.heads;
  has["grid"] = s.grid > 0;
  has["axial_width"] = s.axial_width > 0;
  has["scale"] = a.scale > 0;
  has["unscaled"] = !a.scaled;
  has["scaled_by_layer"] = a.scaled_by_layer;
  has["clip"] = a.clip > 0;
  has["cap"] = a.cap > 0;
  has["sinks"] = a.sinks;
  has["no bias"] = !a.bias;
  has["no out_bias"] = !a.out_bias;
  has["gated"] = s.gated;
  has["hidden_layers"] = s.hidden_layers > 1;
  has["attention alone"] = s.hidden == 0;
  has["experts"] = x.count > 0;
  has["experts in some layers"] = x.count > 0 && (x.first > 0 || x.every > 1);
  has["segments"] = s.segments > 1;
  has["embedding_norm"] = s.embedding_norm;
  has["embedding_unit"] = s.embedding_unit;
  has["embedding_scaled"] = s.embedding_scaled;
  has["embedding_width"] = s.embedding_width > 0;
  has["embedding_projected_last"] = s.embedding_projected_last;
  has["head"] = s.head_width > 0;
  has["head_activation"] = s.head_activation.has_value();
  has["unembedding_bias"] = s.unembedding_bias;
  has["unembedding_scaled"] = s.unembedding_scaled;
  has["logit_cap"] = s.logit_cap > 0;
  has["no final_norm"] = !s.final_norm;
  has["kinds"] = !s.kinds.empty();
  if (!two) has["layer_groups"] = s.layer_groups > 0;
  if (decoder) has["kv_latent"] = s.mixer.get_if<LatentMixer>() != nullptr;
  if (decoder) has["mixer average"] = s.mixer.get_if<AverageMixer>() != nullptr;
  has["mixer attention_free"] = s.mixer.get_if<AttentionFreeMixer>() != nullptr;
  const auto* random = s.mixer.get_if<RandomFeaturesMixer>();
  has["mixer random_features"] = random != nullptr;
  has["random_map fourier"] = random != nullptr && random->map == RandomMap::fourier;
  has["random_unit"] = random != nullptr && random->unit;
  if (encoder) has["random_epsilon"] = random != nullptr && random->epsilon > 0;
  has["mixer linear_attention"] = s.mixer.get_if<LinearAttentionMixer>() != nullptr;
  if (decoder) {
    has["mixer delta_rule"] = s.mixer.get_if<DeltaRuleMixer>() != nullptr;
    has["mixer gated_delta"] = s.mixer.get_if<GatedDeltaMixer>() != nullptr;
    has["mixer mamba"] = s.mixer.get_if<MambaMixer>() != nullptr;
    has["mixer mamba2"] = s.mixer.get_if<Mamba2Mixer>() != nullptr;
    has["mixer convolution"] = s.mixer.get_if<ConvolutionMixer>() != nullptr;
    has["mixer rwkv4"] = s.mixer.get_if<Rwkv4Mixer>() != nullptr;
    has["mixer rwkv7"] = s.mixer.get_if<Rwkv7Mixer>() != nullptr;
    has["channel_mix rwkv4"] = s.channel_mix == ChannelMix::rwkv4;
    has["channel_mix rwkv7"] = s.channel_mix == ChannelMix::rwkv7;
  }
  has["mixer lstm"] = s.mixer.get_if<LstmMixer>() != nullptr;
  has["mixer gru"] = s.mixer.get_if<GruMixer>() != nullptr;
  const auto some = [&](const auto& part) { return std::ranges::any_of(a.patterns, part); };
  if (!two) {
    has["ends"] = some([](const Pattern& p) { return p.ends; });
    has["random"] = some([](const Pattern& p) { return p.random > 0; });
  }
  if (encoder) {
    has["beyond"] = some([](const Pattern& p) { return p.beyond > 0; });
    has["first_block"] = some([](const Pattern& p) { return p.first_block > 1; });
    has["global_projections"] = a.global_projections;
    has["relative_segments"] = a.relative.segments;
  }
  if (two) {
    has["encoder_width"] = s.encoder.width > 0;
    has["encoder_heads alone"] = s.encoder.heads > 0 && s.encoder.width == 0;
    has["encoder_hidden"] = s.encoder.hidden > 0;
    has["encoder_expert_every"] = s.encoder.expert_every > 0;
    has["source_vocab_size"] = s.source_vocab_size > 0;
    has["stacks_apart"] = s.stacks_apart;
    has["source_reversed"] = s.source_reversed;
  }
  return has;
}

void expect_each_drawn(Architecture architecture) {
  // Few have the rarest: those of more seeds than the suites run by default.
  constexpr unsigned kSeeds = 800;
  std::map<std::string, unsigned> drawn;
  for (unsigned seed = 0; seed < kSeeds; ++seed)
    for (const auto& [what, has] : variations_of(mixed_shape(seed, architecture).spec)) drawn[what] += has;
  for (const auto& [what, times] : drawn)
    EXPECT_GE(times, 2U) << what << " in " << kSeeds << " seeds of " << name_of(architecture);
}

}  // namespace qkv
