// Llama and its kin, whose tensors are called model.layers.N.self_attn.q_proj: Hugging Face's
// LlamaForCausalLM and those that differ from it in a few pieces.
#include <cmath>

#include "qkv/io/family_parts.h"

namespace qkv {
namespace {

constexpr int64_t kMost = kMostOfConfig;

// What config.json says under the names that all of them share.
ModelSpec read_shared(const JsonField& c) {
  ModelSpec s;
  s.vocab_size = c["vocab_size"].integer(0, kMost);
  s.context = c.integer_or("max_position_embeddings", 2048, 1, kMost);
  s.width = c["hidden_size"].integer(0, kMost);
  s.layers = c["num_hidden_layers"].integer(0, kMost);
  s.hidden = c["intermediate_size"].integer(0, kMost);
  AttentionSpec& a = s.attention;
  a.heads = c["num_attention_heads"].integer(1, kMost);
  a.kv_heads = c.integer_or("num_key_value_heads", a.heads, 1, kMost);
  a.d_qk = a.d_vo = c.integer_or("head_dim", s.width / a.heads, 1, kMost);
  a.bias = a.out_bias = c.boolean_or("attention_bias", false);
  a.dropout = c.number_or("attention_dropout", 0);
  s.feed_forward_bias = c.boolean_or("mlp_bias", false);
  s.activation = read_activation(c, "hidden_act", "silu");
  s.gated = true;
  s.normalization = Normalization::rms;
  s.norm_epsilon = c.number_or("rms_norm_eps", 1e-6F);
  s.positions = Positions::rotary;
  a.rotary.width = a.d_qk;
  a.rotary.base = c.number_or("rope_theta", 10000);
  read_rotary_scaling(c, s.context, a.rotary);
  s.tied = c.boolean_or("tie_word_embeddings", false);
  s.init_std = c.number_or("initializer_range", 0.02F);
  return s;
}

OrderedJson write_shared(const ModelSpec& s, const char* type, const char* architecture) {
  const AttentionSpec& a = s.attention;
  OrderedJson c = {{"model_type", type},
                   {"architectures", {architecture}},
                   {"vocab_size", s.vocab_size},
                   {"max_position_embeddings", s.context},
                   {"hidden_size", s.width},
                   {"num_hidden_layers", s.layers},
                   {"intermediate_size", s.hidden},
                   {"hidden_act", config_name_of(s.activation)},
                   {"num_attention_heads", a.heads},
                   {"num_key_value_heads", a.kv_heads},
                   {"attention_dropout", decimal(a.dropout)},
                   {"rope_theta", a.rotary.base},
                   {"tie_word_embeddings", s.tied},
                   {"initializer_range", decimal(s.init_std)},
                   {"torch_dtype", "float32"},
                   {"use_cache", true}};
  if (s.normalization == Normalization::rms || s.normalization == Normalization::rms_plus_one)
    c["rms_norm_eps"] = decimal(s.norm_epsilon);
  if (OrderedJson scaling = rotary_scaling_json(a.rotary); !scaling.is_null())
    c["rope_scaling"] = std::move(scaling);
  return c;
}

// Where tensors are called otherwise than Llama's.
struct Names {
  bool query_key_norms = false;  // q_norm and k_norm
  const char* out = "o_proj";
  const char* attention_norm = "input_layernorm";
  const char* feed_forward_norm = "post_attention_layernorm";
  const char* attention_branch_norm = nullptr;
  const char* feed_forward_branch_norm = nullptr;
  std::vector<std::string> up = {"gate_proj", "up_proj"};
  const char* down = "down_proj";
  const char* last_norm = "model.norm";
  bool fused = false;  // qkv_proj and gate_up_proj
};

std::vector<WeightName> weights_by(const ModelSpec& s, const Names& names) {
  const AttentionSpec& a = s.attention;
  WeightNames n;
  n.tensor("embedding.token", "model.embed_tokens.weight");
  const auto norm = [&](const std::string& engine, const std::string& file) {
    if (s.normalization == Normalization::layer_plain) return;
    n.bias = s.normalization == Normalization::layer;
    n.norm(engine, file);
  };
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string e = fmt::format("decoder.block.{}.", l), f = fmt::format("model.layers.{}.", l);
    const auto norm_if = [&](const char* engine, const char* file) {
      if (file != nullptr) norm(e + engine, f + file);
    };
    norm_if("attention.norm", names.attention_norm);
    norm_if("attention.branch_norm", names.attention_branch_norm);
    norm_if("feed_forward.norm", names.feed_forward_norm);
    norm_if("feed_forward.branch_norm", names.feed_forward_branch_norm);
    if (names.query_key_norms) {
      n.tensor(e + "attention.query_norm.gamma", f + "self_attn.q_norm.weight");
      n.tensor(e + "attention.key_norm.gamma", f + "self_attn.k_norm.weight");
    }
    n.bias = a.bias;
    const std::string qkv = e + "attention.qkv", self = f + "self_attn.";
    if (names.fused)
      n.linear(qkv, self + "qkv_proj");
    else
      n.parts(qkv, {self + "q_proj", self + "k_proj", self + "v_proj"},
              {a.heads * a.d_qk, a.kv_heads * a.d_qk, a.kv_heads * a.d_vo});
    n.bias = a.out_bias;
    n.linear(e + "attention.out", self + names.out);
    n.bias = s.feed_forward_bias;
    if (names.fused) {
      n.linear(e + "feed_forward.up", f + "mlp.gate_up_proj");
    } else if (names.up.size() == 1) {
      n.linear(e + "feed_forward.up", f + "mlp." + names.up[0]);
    } else {
      n.parts(e + "feed_forward.up", {f + "mlp." + names.up[0], f + "mlp." + names.up[1]},
              {s.hidden, s.hidden});
    }
    n.linear(e + "feed_forward.down", f + "mlp." + names.down);
  }
  norm("decoder.norm", names.last_norm);
  if (!s.tied) n.tensor("unembedding.weight", "lm_head.weight");
  if (s.unembedding_bias) n.tensor("unembedding.bias", "lm_head.bias");
  return n.all;
}

bool is_extra(const ModelSpec& s, const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq") || (s.tied && name == "lm_head.weight");
}

// Whether this is a decoder of the kind that they all are. family_for() looks at the rest.
bool is_rotary_decoder(const ModelSpec& s) {
  return s.architecture == Architecture::decoder && s.output == Output::tokens &&
         s.positions == Positions::rotary && s.attention.d_qk == s.attention.d_vo;
}

void no(const JsonField& c, const char* key) {
  check(!c.boolean_or(key, false), "{}: {}: only false is supported", c.place(), key);
}

// Of those that may have a window: the last so many tokens in every layer.
void read_window(const JsonField& c, ModelSpec& s) {
  if (const auto w = c.find("sliding_window")) s.attention.windows = {w->integer(1, kMost)};
}
OrderedJson window_json(const ModelSpec& s) {
  return s.attention.windows.empty() ? OrderedJson(nullptr) : OrderedJson(s.attention.windows[0]);
}

// A family of such decoders: what is read and written beside the shared keys, and its names of tensors.
Family decoders(
    const char* type, ModelSpec (*read)(const JsonField&), OrderedJson (*write)(const ModelSpec&),
    std::vector<WeightName> (*weights)(const ModelSpec&) = [](const ModelSpec& s) {
      return weights_by(s, {});
    }) {
  return {type, read, write, is_rotary_decoder, weights, "model.", is_extra};
}

}  // namespace

const Family& llama_family() {
  static const Family family = decoders("llama", read_shared, [](const ModelSpec& s) {
    OrderedJson c = write_shared(s, "llama", "LlamaForCausalLM");
    c["head_dim"] = s.attention.d_qk;
    c["attention_bias"] = s.attention.bias;
    c["mlp_bias"] = s.feed_forward_bias;
    return c;
  });
  return family;
}

const Family& mistral_family() {
  static const Family family = decoders(
      "mistral",
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
        read_window(c, s);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_shared(s, "mistral", "MistralForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["sliding_window"] = window_json(s);
        return c;
      });
  return family;
}

const Family& qwen2_family() {
  static const Family family = decoders(
      "qwen2",
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
        no(c, "use_sliding_window");
        s.attention.bias = true;
        s.attention.out_bias = false;
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_shared(s, "qwen2", "Qwen2ForCausalLM");
        c["use_sliding_window"] = false;
        return c;
      });
  return family;
}

const Family& gemma_family() {
  static const Family family = decoders(
      "gemma",
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
        // Old files say hidden_act gelu and mean the tanh form.
        s.activation =
            c.find("hidden_activation") ? read_activation(c, "hidden_activation", "") : Activation::gelu_tanh;
        s.normalization = Normalization::rms_plus_one;
        s.embedding_scaled = true;
        s.tied = c.boolean_or("tie_word_embeddings", true);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_shared(s, "gemma", "GemmaForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["attention_bias"] = s.attention.bias;
        c["hidden_act"] = c["hidden_activation"] =
            s.activation == Activation::gelu_tanh ? "gelu_pytorch_tanh" : config_name_of(s.activation);
        return c;
      });
  return family;
}

const Family& phi_family() {
  static const Family family = decoders(
      "phi",
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
        no(c, "qk_layernorm");
        s.activation = read_activation(c, "hidden_act", "gelu_new");
        s.gated = false;
        s.normalization = Normalization::layer;
        s.norm_epsilon = c.number_or("layer_norm_eps", 1e-5F);
        s.branches = Branches::one_norm;
        s.attention.bias = s.attention.out_bias = s.feed_forward_bias = s.unembedding_bias = true;
        s.attention.rotary.width = rotated(c.number_or("partial_rotary_factor", 0.5F), s.attention.d_qk);
        s.embedding_dropout = c.number_or("embd_pdrop", 0);
        s.residual_dropout = c.number_or("resid_pdrop", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_shared(s, "phi", "PhiForCausalLM");
        c["layer_norm_eps"] = decimal(s.norm_epsilon);
        c["partial_rotary_factor"] = rotated_part(s.attention);
        c["embd_pdrop"] = decimal(s.embedding_dropout);
        c["resid_pdrop"] = decimal(s.residual_dropout);
        c["qk_layernorm"] = false;
        return c;
      },
      [](const ModelSpec& s) {
        return weights_by(s, {.out = "dense",
                              .feed_forward_norm = nullptr,
                              .up = {"fc1"},
                              .down = "fc2",
                              .last_norm = "model.final_layernorm"});
      });
  return family;
}

const Family& phi3_family() {
  static const Family family = decoders(
      "phi3",
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
        read_window(c, s);
        s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
        s.attention.rotary.width = rotated(c.number_or("partial_rotary_factor", 1), s.attention.d_qk);
        s.embedding_dropout = c.number_or("embd_pdrop", 0);
        s.residual_dropout = c.number_or("resid_pdrop", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_shared(s, "phi3", "Phi3ForCausalLM");
        c["original_max_position_embeddings"] = s.context;
        c["partial_rotary_factor"] = rotated_part(s.attention);
        c["sliding_window"] = window_json(s);
        c["embd_pdrop"] = decimal(s.embedding_dropout);
        c["resid_pdrop"] = decimal(s.residual_dropout);
        return c;
      },
      [](const ModelSpec& s) { return weights_by(s, {.fused = true}); });
  return family;
}

const Family& olmo_family() {
  static const Family family = decoders(
      "olmo",
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
        check(!c.find("clip_qkv"), "{}: clip_qkv: not supported", c.place());
        s.normalization = Normalization::layer_plain;
        s.norm_epsilon = 1e-5F;
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_shared(s, "olmo", "OlmoForCausalLM");
        c["attention_bias"] = s.attention.bias;
        return c;
      });
  return family;
}

const Family& olmo2_family() {
  static const Family family = decoders(
      "olmo2",
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
        s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
        s.norm_placement = NormPlacement::branch;
        s.attention.query_key_norm = QueryKeyNorm::whole;
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_shared(s, "olmo2", "Olmo2ForCausalLM");
        c["attention_bias"] = s.attention.bias;
        return c;
      },
      [](const ModelSpec& s) {
        return weights_by(s, {.query_key_norms = true,
                              .attention_norm = nullptr,
                              .feed_forward_norm = nullptr,
                              .attention_branch_norm = "post_attention_layernorm",
                              .feed_forward_branch_norm = "post_feedforward_layernorm"});
      });
  return family;
}

const Family& stablelm_family() {
  static const Family family = decoders(
      "stablelm",
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
        no(c, "qk_layernorm");
        s.normalization = Normalization::layer;
        s.norm_epsilon = c.number_or("layer_norm_eps", 1e-5F);
        s.attention.bias = c.boolean_or("use_qkv_bias", false);
        s.attention.out_bias = false;
        if (c.boolean_or("use_parallel_residual", false)) s.branches = Branches::one_norm;
        s.attention.rotary.width = rotated(c.number_or("partial_rotary_factor", 0.25F), s.attention.d_qk);
        s.residual_dropout = c.number_or("hidden_dropout", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_shared(s, "stablelm", "StableLmForCausalLM");
        c["layer_norm_eps"] = decimal(s.norm_epsilon);
        c["use_qkv_bias"] = s.attention.bias;
        c["use_parallel_residual"] = s.branches == Branches::one_norm;
        c["partial_rotary_factor"] = rotated_part(s.attention);
        c["hidden_dropout"] = decimal(s.residual_dropout);
        c["qk_layernorm"] = false;
        return c;
      },
      [](const ModelSpec& s) {
        return s.branches == Branches::one_norm ? weights_by(s, {.feed_forward_norm = nullptr})
                                                : weights_by(s, {});
      });
  return family;
}

const Family& starcoder2_family() {
  static const Family family = decoders(
      "starcoder2",
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
        read_window(c, s);
        s.activation = read_activation(c, "hidden_act", "gelu_pytorch_tanh");
        s.gated = false;
        s.normalization = Normalization::layer;
        s.norm_epsilon = c.number_or("norm_epsilon", 1e-5F);
        s.attention.bias = s.attention.out_bias = s.feed_forward_bias = c.boolean_or("use_bias", true);
        s.tied = c.boolean_or("tie_word_embeddings", true);
        s.embedding_dropout = c.number_or("embedding_dropout", 0);
        s.residual_dropout = c.number_or("residual_dropout", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_shared(s, "starcoder2", "Starcoder2ForCausalLM");
        c["norm_epsilon"] = decimal(s.norm_epsilon);
        c["sliding_window"] = window_json(s);
        c["use_bias"] = s.attention.bias;
        c["embedding_dropout"] = decimal(s.embedding_dropout);
        c["residual_dropout"] = decimal(s.residual_dropout);
        return c;
      },
      [](const ModelSpec& s) { return weights_by(s, {.up = {"c_fc"}, .down = "c_proj"}); });
  return family;
}

const Family& granite_family() {
  static const Family family = decoders(
      "granite",
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
        s.attention.scale = c.number_or("attention_multiplier", 1);
        s.embedding_multiplier = c.number_or("embedding_multiplier", 1);
        s.residual_multiplier = c.number_or("residual_multiplier", 1);
        s.logit_multiplier = 1 / c.number_or("logits_scaling", 1);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_shared(s, "granite", "GraniteForCausalLM");
        c["attention_bias"] = s.attention.bias;
        c["mlp_bias"] = s.feed_forward_bias;
        c["attention_multiplier"] = decimal(s.attention.scale);
        c["embedding_multiplier"] = decimal(s.embedding_multiplier);
        c["residual_multiplier"] = decimal(s.residual_multiplier);
        c["logits_scaling"] = decimal(1 / s.logit_multiplier);
        return c;
      });
  return family;
}

const Family& cohere_family() {
  static const Family family = decoders(
      "cohere",
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
        no(c, "use_qk_norm");
        s.normalization = Normalization::layer_scale;
        s.norm_epsilon = c.number_or("layer_norm_eps", 1e-5F);
        s.branches = Branches::one_norm;
        s.attention.rotary.layout = RotaryLayout::interleaved;
        s.logit_multiplier = c.number_or("logit_scale", 0.0625F);
        s.tied = c.boolean_or("tie_word_embeddings", true);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_shared(s, "cohere", "CohereForCausalLM");
        c["attention_bias"] = s.attention.bias;
        c["layer_norm_eps"] = decimal(s.norm_epsilon);
        c["logit_scale"] = decimal(s.logit_multiplier);
        c["use_qk_norm"] = false;
        return c;
      },
      [](const ModelSpec& s) { return weights_by(s, {.feed_forward_norm = nullptr}); });
  return family;
}

}  // namespace qkv
