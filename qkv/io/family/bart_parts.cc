#include "qkv/io/family/bart_parts.h"

#include "qkv/base/json_value.h"

namespace qkv {

ModelSpec read_bart_like(const JsonField& c, const char* context) {
  ModelSpec s;
  s.architecture = Architecture::encoder_decoder;
  s.vocab_size = c["vocab_size"].integer(0, kMost);
  s.context = c[context].integer(0, kMost);
  s.width = c["d_model"].integer(0, kMost);
  s.encoder_layers = c["encoder_layers"].integer(0, kMost);
  s.layers = c["decoder_layers"].integer(0, kMost);
  const int64_t heads = c["decoder_attention_heads"].integer(1, kMost),
                encoder_heads = c["encoder_attention_heads"].integer(1, kMost),
                encoder_hidden = c["encoder_ffn_dim"].integer(1, kMost);
  s.hidden = c["decoder_ffn_dim"].integer(0, kMost);
  if (encoder_heads != heads) s.encoder.heads = encoder_heads;
  if (encoder_hidden != s.hidden) s.encoder.hidden = encoder_hidden;
  for (const int64_t n : {heads, encoder_heads})
    check(s.width % n == 0, "{}: d_model {} is not divisible by {} heads", c.place(), s.width, n);
  s.attention.heads = s.attention.kv_heads = heads;
  s.attention.d_qk = s.attention.d_vo = s.width / heads;
  s.activation = read_activation(c, "activation_function", "gelu");
  s.norm_placement = NormPlacement::post;
  s.embedding_scaled = c.boolean_or("scale_embedding", false);
  s.unembedding_bias = true;  // final_logits_bias
  s.attention.dropout = c.number_or("attention_dropout", 0);
  s.embedding_dropout = s.residual_dropout = c.number_or("dropout", 0.1F);
  s.init_std = c.number_or("init_std", 0.02F);
  s.tied = c.boolean_or("tie_word_embeddings", true);
  return s;
}

OrderedJson write_bart_like(const ModelSpec& s, const char* type, const char* architecture) {
  OrderedJson c = {{"model_type", type},
                   {"architectures", {architecture}},
                   {"is_encoder_decoder", true},
                   {"vocab_size", s.vocab_size},
                   {"max_position_embeddings", s.context},
                   {"d_model", s.width},
                   {"encoder_layers", s.encoder_layers},
                   {"decoder_layers", s.layers},
                   {"encoder_attention_heads", s.encoder_spec().attention.heads},
                   {"decoder_attention_heads", s.attention.heads},
                   {"encoder_ffn_dim", s.encoder_spec().hidden},
                   {"decoder_ffn_dim", s.hidden},
                   {"activation_function", config_name_of(s.activation)},
                   {"scale_embedding", s.embedding_scaled},
                   {"attention_dropout", decimal(s.attention.dropout)},
                   {"activation_dropout", 0.0},
                   {"dropout", decimal(s.residual_dropout)},
                   {"init_std", decimal(s.init_std)},
                   {"torch_dtype", "float32"}};
  if (!s.tied) c["tie_word_embeddings"] = false;
  return c;
}

bool is_bart_like(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  return s.architecture == Architecture::encoder_decoder && s.normalization == Normalization::layer &&
         a.bias && a.out_bias && a.scaled && !a.scaled_by_layer && a.kv_heads == a.heads &&
         a.d_qk == a.d_vo && a.heads * a.d_qk == s.width && s.feed_forward_bias && !s.gated &&
         !s.unembedding_scaled && s.head_width == 0 && s.segments == 0 &&
         s.embedding_dropout == s.residual_dropout && s.activation != Activation::tanh &&
         s.norm_epsilon == 1e-5F && s.source_vocab_size == 0 && s.encoder.width == 0;
}

void add_bart_blocks(const ModelSpec& s, WeightNames& n, const BartNames& of_encoder) {
  const int64_t w = s.width;
  const BartNames of_decoder;
  for (const char* stack : {"encoder", "decoder"}) {
    const bool decoder = stack[0] == 'd';
    for (int64_t l = 0; l < (decoder ? s.layers : s.encoder_layers); ++l) {
      const std::string engine = fmt::format("{}.block.{}.", stack, l),
                        file = fmt::format("{}.{}.layers.{}.", of_encoder.base, stack, l),
                        cross = file + "encoder_attn.";
      const BartNames& of = decoder ? of_decoder : of_encoder;
      n.parts(engine + "attention.qkv", {file + of.query, file + of.key, file + of.value}, {w, w, w});
      n.linear(engine + "attention.out", file + of.out);
      n.norm(engine + "attention.norm", file + "self_attn_layer_norm");
      if (decoder) {
        n.linear(engine + "cross_attention.q", cross + "q_proj");
        n.parts(engine + "cross_attention.kv", {cross + "k_proj", cross + "v_proj"}, {w, w});
        n.linear(engine + "cross_attention.out", cross + "out_proj");
        n.norm(engine + "cross_attention.norm", file + "encoder_attn_layer_norm");
      }
      n.linear(engine + "feed_forward.up", file + "fc1");
      n.linear(engine + "feed_forward.down", file + "fc2");
      n.norm(engine + "feed_forward.norm", file + "final_layer_norm");
    }
    if (s.norm_placement == NormPlacement::pre)
      n.norm(fmt::format("{}.norm", stack), fmt::format("{}.{}.layer_norm", of_encoder.base, stack));
  }
}

namespace {

// BART counts positions from 2.
constexpr int64_t kBartUnused = 2;

}  // namespace

void add_bart_unembedding(const ModelSpec& s, WeightNames& n) {
  n.all.push_back({.engine = "unembedding.bias",
                   .file = "final_logits_bias",
                   .shape = {1, s.vocab_size},
                   .optional = true});
  n.untied(s, "lm_head.weight");
}

std::vector<WeightName> weights_named_as_bart(const ModelSpec& s) {
  WeightNames n;
  n.tensor("embedding.token", "model.shared.weight");
  for (const char* stack : {"encoder", "decoder"}) {
    const std::string engine = fmt::format("{}.embedding", stack), file = fmt::format("model.{}.", stack);
    n.all.push_back({engine + ".position", file + "embed_positions.weight", false, 0, 0, kBartUnused});
    n.norm(engine + ".norm", file + "layernorm_embedding");
  }
  add_bart_blocks(s, n);
  add_bart_unembedding(s, n);
  return n.all;
}

std::vector<WeightName> weights_named_as_marian(const ModelSpec& s) {
  WeightNames n;
  n.tensor("embedding.token", "model.shared.weight");
  add_bart_blocks(s, n);
  add_bart_unembedding(s, n);
  return n.all;
}

bool is_extra_in_bart(const ModelSpec& s, const std::string& name) {
  return name.ends_with(".embed_tokens.weight") || (s.tied && name == "lm_head.weight");
}

bool is_extra_in_marian(const ModelSpec& s, const std::string& name) {
  return is_extra_in_bart(s, name) || name.ends_with(".embed_positions.weight");
}

}  // namespace qkv
