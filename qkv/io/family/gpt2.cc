// GPT-2: Hugging Face's GPT2LMHeadModel.

#include "qkv/base/json_value.h"
#include "qkv/io/family/family_parts.h"

namespace qkv {
namespace {

ModelSpec read_gpt2(const JsonField& c) {
  ModelSpec s =
      gpt2_spec(c["vocab_size"].integer(0, kMost), c["n_positions"].integer(0, kMost),
                c["n_embd"].integer(0, kMost), c["n_layer"].integer(0, kMost), c["n_head"].integer(0, kMost));
  s.hidden = c.integer_or("n_inner", 4 * s.width, 0, kMost);
  s.activation = read_activation(c, "activation_function", "gelu_new");
  s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-5F);
  s.attention.scaled = c.boolean_or("scale_attn_weights", true);
  s.attention.scaled_by_layer = c.boolean_or("scale_attn_by_inverse_layer_idx", false);
  s.attention.dropout = c.number_or("attn_pdrop", 0.1F);
  s.embedding_dropout = c.number_or("embd_pdrop", 0.1F);
  s.residual_dropout = c.number_or("resid_pdrop", 0.1F);
  s.init_std = c.number_or("initializer_range", 0.02F);
  s.tied = c.boolean_or("tie_word_embeddings", true);
  check(!c.boolean_or("add_cross_attention", false),
        "{}: add_cross_attention: not supported for a decoder-only model", c.place());
  return s;
}

OrderedJson write_gpt2(const ModelSpec& s) {
  return {{"model_type", "gpt2"},
          {"architectures", {"GPT2LMHeadModel"}},
          {"vocab_size", s.vocab_size},
          {"n_positions", s.context},
          {"n_ctx", s.context},
          {"n_embd", s.width},
          {"n_layer", s.layers},
          {"n_head", s.attention.heads},
          {"n_inner", s.hidden == 4 * s.width ? OrderedJson(nullptr) : OrderedJson(s.hidden)},
          {"activation_function", config_name_of(s.activation)},
          {"layer_norm_epsilon", decimal(s.norm_epsilon)},
          {"scale_attn_weights", s.attention.scaled},
          {"scale_attn_by_inverse_layer_idx", s.attention.scaled_by_layer},
          {"attn_pdrop", decimal(s.attention.dropout)},
          {"embd_pdrop", decimal(s.embedding_dropout)},
          {"resid_pdrop", decimal(s.residual_dropout)},
          {"initializer_range", decimal(s.init_std)},
          {"tie_word_embeddings", s.tied},
          {"torch_dtype", "float32"},
          {"use_cache", true}};
}

bool expresses(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  return s.architecture == Architecture::decoder && s.norm_placement == NormPlacement::pre &&
         s.positions == Positions::learned && !s.embedding_scaled && !s.embedding_norm && s.segments == 0 &&
         s.head_width == 0 && !s.unembedding_bias && has_decoder_head(s) && s.order == Order::stack &&
         !s.gated && s.feed_forward_bias && s.normalization == Normalization::layer &&
         !s.unembedding_scaled && a.bias && a.kv_heads == a.heads && a.d_qk == a.d_vo &&
         a.heads * a.d_qk == s.width;
}

std::vector<WeightName> gpt2_weights(const ModelSpec& s) {
  std::vector<WeightName> names = {{"embedding.token", "transformer.wte.weight"},
                                   {"embedding.position", "transformer.wpe.weight"}};
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string engine = fmt::format("decoder.block.{}.", l),
                      file = fmt::format("transformer.h.{}.", l);
    // Conv1D stores [in, out].
    const auto linear = [&](const char* e, const char* f) {
      names.push_back({engine + e + ".weight", file + f + ".weight", true});
      names.push_back({engine + e + ".bias", file + f + ".bias"});
    };
    const auto norm = [&](const char* e, const char* f) {
      names.push_back({engine + e + ".gamma", file + f + ".weight"});
      names.push_back({engine + e + ".beta", file + f + ".bias"});
    };
    norm("attention.norm", "ln_1");
    linear("attention.qkv", "attn.c_attn");
    linear("attention.out", "attn.c_proj");
    norm("feed_forward.norm", "ln_2");
    linear("feed_forward.up", "mlp.c_fc");
    linear("feed_forward.down", "mlp.c_proj");
  }
  names.push_back({"decoder.norm.gamma", "transformer.ln_f.weight"});
  names.push_back({"decoder.norm.beta", "transformer.ln_f.bias"});
  if (!s.tied) names.push_back({"unembedding.weight", "lm_head.weight"});
  return names;
}

// The causal mask that old files contain, and a second copy of a tied unembedding.
bool ignores(const ModelSpec& s, const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         (s.tied && name == "lm_head.weight");
}

}  // namespace

const Family& gpt2_family() {
  static const Family family = {"gpt2",         read_gpt2, write_gpt2,       expresses,         gpt2_weights,
                                "transformer.", ignores,   Activation::tanh, "GPT2LMHeadModel", "score"};
  return family;
}

}  // namespace qkv
