// Llama and its kin, whose tensors are called model.layers.N.self_attn.q_proj: Hugging Face's
// LlamaForCausalLM and those that differ from it in a few pieces.
#include <algorithm>
#include <cmath>
#include <utility>

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {
namespace {

// Heads of keys and values, where the family's number is `otherwise` when nothing is said; null: as many as
// of queries.
int64_t read_kv_heads(const JsonField& c, int64_t heads, int64_t otherwise) {
  const bool said = c.object().contains("num_key_value_heads");
  return c.integer_or("num_key_value_heads", said ? heads : otherwise, 1, kMost);
}

// Whether this is a decoder of the kind that they all are. family_for() looks at the rest.
bool is_rotary_decoder(const ModelSpec& s) {
  return s.architecture == Architecture::decoder && has_decoder_head(s) && s.positions == Positions::rotary &&
         s.attention.d_qk == s.attention.d_vo;
}

void no(const JsonField& c, const char* key) {
  check(!c.boolean_or(key, false), "{}: {}: only false is supported", c.place(), key);
}

// Of those that may have a window: the last so many tokens in every layer. `otherwise`: where nothing is said
// of it; 0: all.
void read_window(const JsonField& c, ModelSpec& s, int64_t otherwise = 0) {
  if (c.object().contains("sliding_window")) otherwise = 0;
  if (const int64_t w = c.integer_or("sliding_window", otherwise, 1, kMost); w > 0)
    s.attention.patterns = {{.window = w}};
}
OrderedJson window_json(const ModelSpec& s) {
  return s.attention.patterns.empty() ? OrderedJson(nullptr) : OrderedJson(s.attention.patterns[0].window);
}

// The names of a layer's kinds in layer_types.
constexpr const char *kWindowed = "sliding_attention", *kFull = "full_attention";

// The shortest list that says the same of layers in turn.
std::vector<Pattern> in_turn(std::vector<Pattern> of_layers) {
  const auto repeats = [&](size_t period) {
    return std::equal(of_layers.begin() + static_cast<int64_t>(period), of_layers.end(), of_layers.begin());
  };
  size_t period = 1;
  while (period < of_layers.size() && !repeats(period)) ++period;
  of_layers.resize(std::min(period, of_layers.size()));
  if (of_layers == std::vector<Pattern>{{}}) of_layers.clear();
  return of_layers;
}

// Windows of some layers: layer_types names those with a window, else max_window_layers says how
// many below them have none.
void read_layer_windows(const JsonField& c, ModelSpec& s) {
  if (c.boolean_or("use_sliding_window", false)) read_window(c, s, 4096);
  const std::vector<Pattern> of_all = std::exchange(s.attention.patterns, {});
  const Pattern window = of_all.empty() ? Pattern() : of_all[0];
  std::vector<Pattern> of_layers;
  constexpr int64_t kMostLayers = 4096;  // check_spec() refuses more
  if (const auto types = c.find("layer_types")) {
    check(static_cast<int64_t>(types->size()) == s.layers, "{}: {} types for {} layers", types->place(),
          types->size(), s.layers);
    for (int64_t l = 0; l < std::min(s.layers, kMostLayers); ++l) {
      const JsonField type = types->at(static_cast<size_t>(l));
      const bool windowed = type.string() == kWindowed;
      check(windowed || type.string() == kFull, "{}: '{}' is not supported ({} and {} are)", type.place(),
            type.string(), kWindowed, kFull);
      check(!windowed || window != Pattern(), "{}: {} needs use_sliding_window and a sliding_window",
            type.place(), kWindowed);
      of_layers.push_back(windowed ? window : Pattern());
    }
  } else {
    const int64_t first = c.integer_or("max_window_layers", 28, 0, kMost);
    for (int64_t l = 0; l < std::min(s.layers, kMostLayers); ++l)
      of_layers.push_back(l >= first ? window : Pattern());
  }
  s.attention.patterns = in_turn(std::move(of_layers));
}

const Pattern& pattern_of(const ModelSpec& s, int64_t layer) {
  return s.attention.patterns[static_cast<size_t>(layer) % s.attention.patterns.size()];
}
OrderedJson layer_types(const ModelSpec& s) {
  OrderedJson types = OrderedJson::array();
  for (int64_t l = 0; l < s.layers; ++l) types.push_back(pattern_of(s, l) == Pattern() ? kFull : kWindowed);
  return types;
}
void write_layer_windows(const ModelSpec& s, OrderedJson& c) {
  int64_t first = 0;  // with a window
  while (!s.attention.patterns.empty() && first < s.layers && pattern_of(s, first) == Pattern()) ++first;
  const bool windows = !s.attention.patterns.empty() && first < s.layers;
  c["use_sliding_window"] = windows;
  if (!windows) return;
  c["sliding_window"] = pattern_of(s, first).window;
  c["max_window_layers"] = first;
  bool all_above = true;
  for (int64_t l = first; l < s.layers; ++l) all_above = all_above && pattern_of(s, l) != Pattern();
  if (!all_above) c["layer_types"] = layer_types(s);
}

// What a family's published code calls its decoder, and the tensor of its classes ("": it has none).
struct Class {
  const char* language_model;
  const char* classifier = "score";
};

// A family of such decoders: what is read and written beside the shared keys, and its names of tensors.
Family decoders(
    const char* type, const Class& its, ModelSpec (*read)(const JsonField&),
    OrderedJson (*write)(const ModelSpec&),
    std::vector<WeightName> (*weights)(const ModelSpec&) = [](const ModelSpec& s) {
      return weights_named_as_llama(s, {});
    }) {
  return {type,
          read,
          write,
          is_rotary_decoder,
          weights,
          "model.",
          is_extra_in_llama,
          Activation::tanh,
          its.language_model,
          its.classifier};
}

}  // namespace

const Family& llama_family() {
  static const Family family =
      decoders("llama", {"LlamaForCausalLM"}, read_llama_like, [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "llama", "LlamaForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["attention_bias"] = s.attention.bias;
        c["mlp_bias"] = s.feed_forward_bias;
        return c;
      });
  return family;
}

const Family& mistral_family() {
  static const Family family = decoders(
      "mistral", {"MistralForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        read_window(c, s, 4096);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 8);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "mistral", "MistralForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["sliding_window"] = window_json(s);
        return c;
      });
  return family;
}

const Family& qwen2_family() {
  static const Family family = decoders(
      "qwen2", {"Qwen2ForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        read_layer_windows(c, s);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 32);
        s.attention.bias = true;
        s.attention.out_bias = false;
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "qwen2", "Qwen2ForCausalLM");
        write_layer_windows(s, c);
        return c;
      });
  return family;
}

const Family& gemma_family() {
  static const Family family = decoders(
      "gemma", {"GemmaForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        // Old files say hidden_act gelu and mean the tanh form.
        s.activation =
            c.find("hidden_activation") ? read_activation(c, "hidden_activation", "") : Activation::gelu_tanh;
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 16);
        s.normalization = Normalization::rms_plus_one;
        s.embedding_scaled = true;
        s.tied = c.boolean_or("tie_word_embeddings", true);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "gemma", "GemmaForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["attention_bias"] = s.attention.bias;
        c["hidden_act"] = c["hidden_activation"] =
            s.activation == Activation::gelu_tanh ? "gelu_pytorch_tanh" : config_name_of(s.activation);
        return c;
      });
  return family;
}

const Family& gemma2_family() {
  static const Family family = decoders(
      "gemma2", {"Gemma2ForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = gemma_family().read_config(c);
        AttentionSpec& a = s.attention;
        a.kv_heads = read_kv_heads(c, a.heads, 4);
        s.norm_placement = NormPlacement::sandwich;
        const double scalar = c.number_or("query_pre_attn_scalar", 256);
        if (scalar != static_cast<double>(a.d_qk)) a.scale = static_cast<float>(1 / std::sqrt(scalar));
        // null is none, and nothing the published value.
        const auto otherwise = [&](const char* key, float value) {
          return c.object().contains(key) ? 0 : value;
        };
        a.cap = c.number_or("attn_logit_softcapping", otherwise("attn_logit_softcapping", 50));
        s.logit_cap = c.number_or("final_logit_softcapping", otherwise("final_logit_softcapping", 30));
        no(c, "use_bidirectional_attention");
        if (const auto types = c.find("layer_types"))
          for (size_t i = 0; i < types->size(); ++i)
            check(types->at(i).string() == (i % 2 == 0 ? "sliding_attention" : "full_attention"),
                  "{}: layer_types: only sliding_attention and full_attention in turn are supported",
                  c.place());
        a.patterns = {{.window = c.integer_or("sliding_window", 4096, 1, kMost)}, {}};
        return s;
      },
      [](const ModelSpec& s) {
        const AttentionSpec& a = s.attention;
        OrderedJson c = gemma_family().write_config(s);
        c["model_type"] = "gemma2";
        c["architectures"] = {"Gemma2ForCausalLM"};
        const double scalar =
            a.scale > 0 ? 1 / (double{a.scale} * double{a.scale}) : static_cast<double>(a.d_qk);
        c["query_pre_attn_scalar"] =
            std::abs(scalar - std::round(scalar)) < 1e-4 ? std::round(scalar) : scalar;
        c["attn_logit_softcapping"] = a.cap > 0 ? OrderedJson(decimal(a.cap)) : OrderedJson(nullptr);
        c["final_logit_softcapping"] =
            s.logit_cap > 0 ? OrderedJson(decimal(s.logit_cap)) : OrderedJson(nullptr);
        if (a.patterns.size() == 2) c["sliding_window"] = a.patterns[0].window;
        return c;
      },
      [](const ModelSpec& s) {
        return weights_named_as_llama(s, {.feed_forward_norm = "pre_feedforward_layernorm",
                                          .attention_branch_norm = "post_attention_layernorm",
                                          .feed_forward_branch_norm = "post_feedforward_layernorm"});
      });
  return family;
}

const Family& mixtral_family() {
  static const Family family = decoders(
      "mixtral", {"MixtralForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        read_window(c, s);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 8);
        const auto scaling = rotary_scaling_of(c);
        if (!c.find("rope_theta") && !(scaling && scaling->find("rope_theta"))) s.attention.rotary.base = 1e6;
        s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
        ExpertsSpec& x = s.experts;
        x.count = c.integer_or("num_local_experts", 8, 1, kMost);
        x.chosen = c.integer_or("num_experts_per_tok", 2, 1, kMost);
        x.hidden = s.hidden;
        x.balance = c.number_or("router_aux_loss_coef", 0.001F);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "mixtral", "MixtralForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["sliding_window"] = window_json(s);
        c["num_local_experts"] = s.experts.count;
        c["num_experts_per_tok"] = s.experts.chosen;
        c["router_aux_loss_coef"] = decimal(s.experts.balance);
        return c;
      },
      [](const ModelSpec& s) {
        return weights_named_as_llama(s, {.mixture = "block_sparse_moe", .expert = {"w1", "w3", "w2"}});
      });
  return family;
}

const Family& qwen2_moe_family() {
  static const Family family = decoders(
      "qwen2_moe", {"Qwen2MoeForCausalLM"},
      [](const JsonField& c) {
        // Which layers max_window_layers means, versions of its makers' code tell differently.
        check(!c.boolean_or("use_sliding_window", false) || c.find("layer_types") ||
                  c.integer_or("max_window_layers", 28, 0, kMost) == 0,
              "{}: max_window_layers: without layer_types only 0 is supported, all layers' windows",
              c.place());
        ModelSpec s = qwen2_family().read_config(c);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 16);
        ExpertsSpec& x = s.experts;
        x.count = c.integer_or("num_experts", 60, 1, kMost);
        x.chosen = c.integer_or("num_experts_per_tok", 4, 1, kMost);
        x.hidden = c.integer_or("moe_intermediate_size", 1408, 1, kMost);
        x.every = c.integer_or("decoder_sparse_step", 1, 1, kMost);
        x.first = x.every - 1;
        if (const auto dense = c.find("mlp_only_layers")) {
          const std::vector<int64_t> layers = dense->integers(0, kMost);
          for (size_t i = 0; i < layers.size(); ++i)
            check(x.every == 1 && layers[i] == static_cast<int64_t>(i),
                  "{}: only the first layers, [0, 1, ...] with decoder_sparse_step 1, are supported",
                  dense->place());
          if (!layers.empty()) x.first = std::ssize(layers);
        }
        x.renormalized = c.boolean_or("norm_topk_prob", false);
        x.shared_hidden = c.integer_or("shared_expert_intermediate_size", 5632, 1, kMost);
        x.shared_gated = true;
        x.balance = c.number_or("router_aux_loss_coef", 0.001F);
        return s;
      },
      [](const ModelSpec& s) {
        const ExpertsSpec& x = s.experts;
        OrderedJson c = qwen2_family().write_config(s);
        c["model_type"] = "qwen2_moe";
        c["architectures"] = {"Qwen2MoeForCausalLM"};
        if (c["use_sliding_window"].get<bool>()) c["layer_types"] = layer_types(s);
        c["num_experts"] = x.count;
        c["num_experts_per_tok"] = x.chosen;
        c["moe_intermediate_size"] = x.hidden;
        c["decoder_sparse_step"] = x.every;
        c["mlp_only_layers"] = OrderedJson::array();
        for (int64_t l = 0; x.every == 1 && l < x.first; ++l) c["mlp_only_layers"].push_back(l);
        c["norm_topk_prob"] = x.renormalized;
        c["shared_expert_intermediate_size"] = x.shared_hidden;
        c["router_aux_loss_coef"] = decimal(x.balance);
        return c;
      });
  return family;
}

const Family& phi_family() {
  static const Family family = decoders(
      "phi", {"PhiForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        if (c.boolean_or("qk_layernorm", false)) s.attention.query_key_norm = QueryKeyNorm::layer;
        s.activation = read_activation(c, "hidden_act", "gelu_new");
        s.gated = false;
        s.normalization = Normalization::layer;
        s.norm_epsilon = c.number_or("layer_norm_eps", 1e-5F);
        s.branches = Branches::one_norm;
        s.attention.bias = s.attention.out_bias = s.feed_forward_bias = s.unembedding_bias = true;
        s.attention.rotary.width = read_rotated(c, "partial_rotary_factor", 0.5, s.attention.d_qk);
        s.embedding_dropout = c.number_or("embd_pdrop", 0);
        s.residual_dropout = c.number_or("resid_pdrop", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "phi", "PhiForCausalLM");
        c["layer_norm_eps"] = decimal(s.norm_epsilon);
        c["partial_rotary_factor"] = rotated_part(s.attention);
        c["embd_pdrop"] = decimal(s.embedding_dropout);
        c["resid_pdrop"] = decimal(s.residual_dropout);
        c["qk_layernorm"] = s.attention.query_key_norm == QueryKeyNorm::layer;
        return c;
      },
      [](const ModelSpec& s) {
        return weights_named_as_llama(s, {.query_key_norms = {"q_layernorm", "k_layernorm"},
                                          .out = "dense",
                                          .feed_forward_norm = nullptr,
                                          .up = {"fc1"},
                                          .down = "fc2",
                                          .last_norm = "model.final_layernorm"});
      });
  return family;
}

const Family& phi3_family() {
  constexpr int64_t kPhi3Context = 4096;  // where its config does not say
  static const Family family = decoders(
      "phi3", {"Phi3ForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        s.context = c.integer_or("max_position_embeddings", kPhi3Context, 1, kMost);
        // What it calls su and yarn is longrope, whose original context has a default of its own.
        if (const auto scaling = rotary_scaling_of(c); scaling && scaling->find("short_factor"))
          read_longrope(c, *scaling, s.context, kPhi3Context, s.attention.rotary);
        read_window(c, s);
        s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
        s.attention.rotary.width = read_rotated(c, "partial_rotary_factor", 1, s.attention.d_qk);
        s.embedding_dropout = c.number_or("embd_pdrop", 0);
        s.residual_dropout = c.number_or("resid_pdrop", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "phi3", "Phi3ForCausalLM");
        if (s.attention.rotary.scaling != RotaryScaling::longrope)
          c["original_max_position_embeddings"] = s.context;
        c["partial_rotary_factor"] = rotated_part(s.attention);
        c["sliding_window"] = window_json(s);
        c["embd_pdrop"] = decimal(s.embedding_dropout);
        c["resid_pdrop"] = decimal(s.residual_dropout);
        return c;
      },
      [](const ModelSpec& s) { return weights_named_as_llama(s, {.fused = true}); });
  return family;
}

const Family& olmo_family() {
  static const Family family = decoders(
      "olmo", {"OlmoForCausalLM", ""},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        s.attention.clip = c.number_or("clip_qkv", 0);
        s.normalization = Normalization::layer_plain;
        s.norm_epsilon = 1e-5F;
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "olmo", "OlmoForCausalLM");
        c["attention_bias"] = s.attention.bias;
        c["clip_qkv"] = s.attention.clip > 0 ? OrderedJson(decimal(s.attention.clip)) : OrderedJson(nullptr);
        return c;
      });
  return family;
}

const Family& olmo2_family() {
  static const Family family = decoders(
      "olmo2", {"Olmo2ForCausalLM", ""},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
        s.norm_placement = NormPlacement::branch;
        s.attention.query_key_norm = QueryKeyNorm::whole;
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "olmo2", "Olmo2ForCausalLM");
        c["attention_bias"] = s.attention.bias;
        return c;
      },
      [](const ModelSpec& s) {
        return weights_named_as_llama(s, {.attention_norm = nullptr,
                                          .feed_forward_norm = nullptr,
                                          .attention_branch_norm = "post_attention_layernorm",
                                          .feed_forward_branch_norm = "post_feedforward_layernorm"});
      });
  return family;
}

const Family& stablelm_family() {
  static const Family family = decoders(
      "stablelm", {"StableLmForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        if (c.boolean_or("qk_layernorm", false)) s.attention.query_key_norm = QueryKeyNorm::layer_heads;
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 32);
        s.normalization = Normalization::layer;
        s.norm_epsilon = c.number_or("layer_norm_eps", 1e-5F);
        s.attention.bias = c.boolean_or("use_qkv_bias", false);
        s.attention.out_bias = false;
        if (c.boolean_or("use_parallel_residual", false)) s.branches = Branches::one_norm;
        s.attention.rotary.width = read_rotated(c, "partial_rotary_factor", 0.25, s.attention.d_qk);
        s.residual_dropout = c.number_or("hidden_dropout", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "stablelm", "StableLmForCausalLM");
        c["layer_norm_eps"] = decimal(s.norm_epsilon);
        c["use_qkv_bias"] = s.attention.bias;
        c["use_parallel_residual"] = s.branches == Branches::one_norm;
        c["partial_rotary_factor"] = rotated_part(s.attention);
        c["hidden_dropout"] = decimal(s.residual_dropout);
        c["qk_layernorm"] = s.attention.query_key_norm == QueryKeyNorm::layer_heads;
        return c;
      },
      [](const ModelSpec& s) {
        LlamaNames names = {.query_key_norms = {"q_layernorm", "k_layernorm"}};
        if (s.branches == Branches::one_norm) names.feed_forward_norm = nullptr;
        return weights_named_as_llama(s, names);
      });
  return family;
}

const Family& starcoder2_family() {
  static const Family family = decoders(
      "starcoder2", {"Starcoder2ForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        read_window(c, s);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 2);
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
        OrderedJson c = write_llama_like(s, "starcoder2", "Starcoder2ForCausalLM");
        c["norm_epsilon"] = decimal(s.norm_epsilon);
        c["sliding_window"] = window_json(s);
        c["use_bias"] = s.attention.bias;
        c["embedding_dropout"] = decimal(s.embedding_dropout);
        c["residual_dropout"] = decimal(s.residual_dropout);
        return c;
      },
      [](const ModelSpec& s) { return weights_named_as_llama(s, {.up = {"c_fc"}, .down = "c_proj"}); });
  return family;
}

const Family& granite_family() {
  static const Family family = decoders(
      "granite", {"GraniteForCausalLM", ""},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        s.attention.scale = c.number_or("attention_multiplier", 1);
        s.embedding_multiplier = c.number_or("embedding_multiplier", 1);
        s.residual_multiplier = c.number_or("residual_multiplier", 1);
        s.logit_multiplier = 1 / c.number_or("logits_scaling", 1);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "granite", "GraniteForCausalLM");
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
      "cohere", {"CohereForCausalLM", ""},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        if (c.boolean_or("use_qk_norm", false)) s.attention.query_key_norm = QueryKeyNorm::layer_heads;
        s.normalization = Normalization::layer_scale;
        s.norm_epsilon = c.number_or("layer_norm_eps", 1e-5F);
        s.branches = Branches::one_norm;
        s.attention.rotary.layout = RotaryLayout::interleaved;
        s.logit_multiplier = c.number_or("logit_scale", 0.0625F);
        s.tied = c.boolean_or("tie_word_embeddings", true);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "cohere", "CohereForCausalLM");
        c["attention_bias"] = s.attention.bias;
        c["layer_norm_eps"] = decimal(s.norm_epsilon);
        c["logit_scale"] = decimal(s.logit_multiplier);
        c["use_qk_norm"] = s.attention.query_key_norm == QueryKeyNorm::layer_heads;
        return c;
      },
      [](const ModelSpec& s) { return weights_named_as_llama(s, {.feed_forward_norm = nullptr}); });
  return family;
}

}  // namespace qkv
