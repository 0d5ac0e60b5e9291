#include "qkv/io/family/t5_parts.h"

#include "qkv/base/json_value.h"

namespace qkv {
namespace {

// T5 has no limit of positions: it was trained with 512, and more fits into memory.
constexpr int64_t kT5Context = 4096;

}  // namespace

ModelSpec read_t5(const JsonField& c, const char* otherwise) {
  ModelSpec s;
  s.architecture = Architecture::encoder_decoder;
  s.vocab_size = c["vocab_size"].integer(0, kMost);
  s.context = c.integer_or("n_positions", kT5Context, 1, kMost);
  s.width = c["d_model"].integer(0, kMost);
  s.encoder_layers = c["num_layers"].integer(0, kMost);
  s.layers = c.integer_or("num_decoder_layers", s.encoder_layers, 0, kMost);
  s.attention.heads = s.attention.kv_heads = c["num_heads"].integer(0, kMost);
  s.attention.d_qk = s.attention.d_vo = c["d_kv"].integer(0, kMost);
  s.attention.bias = s.attention.out_bias = false;
  s.attention.scaled = false;
  s.hidden = c["d_ff"].integer(0, kMost);
  s.feed_forward_bias = false;
  const auto projection = c.string_or("feed_forward_proj", otherwise);
  s.gated = c.boolean_or("is_gated_act", projection.starts_with("gated-"));
  // is_gated_act and dense_act_fn follow from the projection, unless they are given.
  const std::string activation =
      c.string_or("dense_act_fn", projection.starts_with("gated-") ? projection.substr(6) : projection);
  if (activation == "relu")
    s.activation = Activation::relu;
  else if (activation == "gelu" || activation == "gelu_new")  // "gated-gelu" always means the tanh form
    s.activation = (projection == "gated-gelu" && !c.find("dense_act_fn")) || activation == "gelu_new"
                       ? Activation::gelu_tanh
                       : Activation::gelu;
  else if (activation == "silu" || activation == "swish")
    s.activation = Activation::silu;
  else
    fail("{}: feed_forward_proj: '{}' is not supported (relu, gated-gelu, gated-silu, ... are)", c.place(),
         projection);
  s.normalization = Normalization::rms;
  s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-6F);
  s.positions = Positions::relative;
  s.relative_buckets = c.integer_or("relative_attention_num_buckets", 32, 0, kMost);
  s.relative_distance = c.integer_or("relative_attention_max_distance", 128, 0, kMost);
  s.tied = c.boolean_or("tie_word_embeddings", true);
  s.unembedding_scaled = s.tied;
  s.attention.dropout = s.embedding_dropout = s.residual_dropout = c.number_or("dropout_rate", 0.1F);
  return s;
}

bool expresses_t5(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  return s.architecture == Architecture::encoder_decoder && s.positions == Positions::relative &&
         s.normalization == Normalization::rms && s.norm_placement == NormPlacement::pre && !a.bias &&
         !a.scaled && !a.scaled_by_layer && a.kv_heads == a.heads && a.d_qk == a.d_vo &&
         !s.feed_forward_bias && s.unembedding_scaled == s.tied && !s.unembedding_bias && s.head_width == 0 &&
         !s.embedding_norm && !s.embedding_scaled && s.segments == 0 && !s.stacks_apart &&
         s.source_vocab_size == 0 && a.dropout == s.residual_dropout &&
         s.embedding_dropout == s.residual_dropout && s.activation != Activation::tanh;
}

namespace {

std::string t5_projection(const ModelSpec& s) {
  const char* name = s.activation == Activation::relu              ? "relu"
                     : s.activation == Activation::silu            ? "silu"
                     : s.gated || s.activation == Activation::gelu ? "gelu"
                                                                   : "gelu_new";
  return (s.gated ? "gated-" : "") + std::string(name);
}

}  // namespace

OrderedJson write_t5(const ModelSpec& s) {
  OrderedJson c = {{"model_type", "t5"},
                   {"architectures", {"T5ForConditionalGeneration"}},
                   {"is_encoder_decoder", true},
                   {"vocab_size", s.vocab_size},
                   {"n_positions", s.context},
                   {"d_model", s.width},
                   {"d_kv", s.attention.d_qk},
                   {"d_ff", s.hidden},
                   {"num_layers", s.encoder_layers},
                   {"num_decoder_layers", s.layers},
                   {"num_heads", s.attention.heads},
                   {"feed_forward_proj", t5_projection(s)},
                   {"layer_norm_epsilon", decimal(s.norm_epsilon)},
                   {"relative_attention_num_buckets", s.relative_buckets},
                   {"relative_attention_max_distance", s.relative_distance},
                   {"dropout_rate", decimal(s.residual_dropout)},
                   {"tie_word_embeddings", s.tied},
                   {"torch_dtype", "float32"}};
  if (s.gated && s.activation == Activation::gelu) {  // "gated-gelu" alone means the tanh form
    c["dense_act_fn"] = "gelu";
    c["is_gated_act"] = true;
  }
  return c;
}

std::vector<WeightName> weights_named_as_t5(const ModelSpec& s, const char* network) {
  WeightNames n{{}, false};
  n.tensor("embedding.token", "shared.weight");
  const int64_t inner = s.attention.heads * s.attention.d_qk;
  for (const char* stack : {"encoder", "decoder"}) {
    const bool decoder = stack[0] == 'd';
    const ExpertsSpec experts = decoder ? s.experts : s.encoder_spec().experts;
    const std::string file_stack = stack, engine_stack = stack;
    const auto distance = [&](const std::string& engine, int64_t layer) {
      n.tensor(engine + ".distance",
               fmt::format("{}.block.{}.layer.0.SelfAttention.relative_attention_bias.weight", stack, layer));
    };
    if (!s.relative_by_layer) distance(engine_stack, 0);
    for (int64_t l = 0; l < (decoder ? s.layers : s.encoder_layers); ++l) {
      const std::string engine = fmt::format("{}.block.{}.", stack, l),
                        file = fmt::format("{}.block.{}.layer.", stack, l);
      const std::string self = file + "0.SelfAttention.", cross = file + "1.EncDecAttention.",
                        dense = fmt::format("{}{}.{}.", file, decoder ? 2 : 1, network);
      n.parts(engine + "attention.qkv", {self + "q", self + "k", self + "v"}, {inner, inner, inner});
      if (s.relative_by_layer) distance(fmt::format("{}.block.{}", stack, l), l);
      n.linear(engine + "attention.out", self + "o");
      n.norm(engine + "attention.norm", file + "0.layer_norm");
      if (decoder) {
        n.linear(engine + "cross_attention.q", cross + "q");
        n.parts(engine + "cross_attention.kv", {cross + "k", cross + "v"}, {inner, inner});
        n.linear(engine + "cross_attention.out", cross + "o");
        n.norm(engine + "cross_attention.norm", file + "1.layer_norm");
      }
      n.norm(engine + "feed_forward.norm", file + (decoder ? "2" : "1") + ".layer_norm");
      if (experts.in_layer(l)) {
        n.linear(engine + "feed_forward.router", dense + "router.classifier");
        for (int64_t i = 0; i < experts.count; ++i) {
          const std::string expert = fmt::format("{}experts.expert_{}.", dense, i);
          n.all.push_back({engine + "feed_forward.experts.up.weight", expert + "wi.weight", false,
                           i * experts.hidden, experts.hidden});
          n.all.push_back({engine + "feed_forward.experts.down.weight", expert + "wo.weight", false,
                           i * s.width, s.width});
        }
        continue;
      }
      if (s.gated)
        n.parts(engine + "feed_forward.up", {dense + "wi_0", dense + "wi_1"}, {s.hidden, s.hidden});
      else
        n.linear(engine + "feed_forward.up", dense + "wi");
      n.linear(engine + "feed_forward.down", dense + "wo");
    }
    n.norm(engine_stack + ".norm", file_stack + ".final_layer_norm");
  }
  n.untied(s, "lm_head.weight");
  return n.all;
}

bool is_extra_in_t5(const ModelSpec& s, const std::string& name) {
  // Published files also have a table of distances to the source, which is not used.
  return name.ends_with(".embed_tokens.weight") || (s.tied && name == "lm_head.weight") ||
         name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
}

}  // namespace qkv
