// Llama and its kin, whose tensors are called model.layers.N.self_attn.q_proj: Hugging Face's
// LlamaForCausalLM and those that differ from it in a few pieces.
#include <cmath>

#include "qkv/io/family_parts.h"

namespace qkv {
namespace {

constexpr int64_t kMost = kMostOfConfig;

// Heads of keys and values, where the family's number is `otherwise` when nothing is said; null: as many as
// of queries.
int64_t read_kv_heads(const JsonField& c, int64_t heads, int64_t otherwise) {
  const bool said = c.object().contains("num_key_value_heads");
  return c.integer_or("num_key_value_heads", said ? heads : otherwise, 1, kMost);
}

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
  if (a.rotary.scaling == RotaryScaling::longrope)
    c["original_max_position_embeddings"] = a.rotary.original_context;
  return c;
}

// Where tensors are called otherwise than Llama's.
struct Names {
  std::vector<std::string> query_key_norms = {"q_norm", "k_norm"};
  const char* out = "o_proj";
  const char* attention_norm = "input_layernorm";
  const char* feed_forward_norm = "post_attention_layernorm";
  const char* attention_branch_norm = nullptr;
  const char* feed_forward_branch_norm = nullptr;
  std::vector<std::string> up = {"gate_proj", "up_proj"};
  const char* down = "down_proj";
  const char* last_norm = "model.norm";
  bool fused = false;  // qkv_proj and gate_up_proj
  // Of mixtures of experts.
  const char* mixture = "mlp";
  std::vector<std::string> expert = {"gate_proj", "up_proj", "down_proj"};
  const char* shared = "shared_expert";
};

// The experts' matrices stand below each other.
void add_experts(WeightNames& n, const ModelSpec& s, const std::string& engine, const std::string& file,
                 const Names& names) {
  const ExpertsSpec& x = s.experts;
  n.bias = false;
  n.linear(engine + "router", file + "gate");
  if (x.choice_bias) n.tensor(engine + "router.choice_bias", file + "gate.e_score_correction_bias");
  for (int64_t i = 0; i < x.count; ++i) {
    const std::string expert = fmt::format("{}experts.{}.", file, i), up = engine + "experts.up.weight";
    const int64_t first = 2 * i * x.hidden;
    n.all.push_back({up, expert + names.expert[0] + ".weight", false, first, x.hidden});
    n.all.push_back({up, expert + names.expert[1] + ".weight", false, first + x.hidden, x.hidden});
    n.all.push_back(
        {engine + "experts.down.weight", expert + names.expert[2] + ".weight", false, i * s.width, s.width});
  }
  if (x.shared_hidden > 0) {
    const std::string shared = file + names.shared + ".";
    n.parts(engine + "shared.up", {shared + "gate_proj", shared + "up_proj"},
            {x.shared_hidden, x.shared_hidden});
    n.linear(engine + "shared.down", shared + "down_proj");
  }
  if (x.shared_gated) n.linear(engine + "shared_gate", file + "shared_expert_gate");
}

// DeepSeek's: of a head the columns that are turned stand last in the file; of what is made of the latent, a
// head's key and value beside each other.
void add_latent_attention(WeightNames& n, const ModelSpec& s, const std::string& engine,
                          const std::string& file) {
  const AttentionSpec& a = s.attention;
  const int64_t turned = a.rotary.width, own = a.d_qk - turned;
  std::vector<int64_t> query_rows, key_rows, value_rows;
  for (int64_t h = 0; h < a.heads; ++h) {
    for (int64_t i = 0; i < a.d_qk; ++i) query_rows.push_back(h * a.d_qk + (own + i) % a.d_qk);
    for (int64_t i = 0; i < own; ++i) key_rows.push_back(h * (own + a.d_vo) + i);
    for (int64_t i = 0; i < a.d_vo; ++i) value_rows.push_back(h * (own + a.d_vo) + own + i);
  }
  key_rows.insert(key_rows.end(), value_rows.begin(), value_rows.end());
  n.bias = a.bias;
  n.linear(engine + "kv_latent", file + "kv_a_proj_with_mqa");
  if (a.query_latent > 0) n.linear(engine + "q_latent", file + "q_a_proj");
  n.bias = false;
  n.norm(engine + "kv_norm", file + "kv_a_layernorm");
  if (a.query_latent > 0) n.norm(engine + "q_norm", file + "q_a_layernorm");
  n.linear(engine + "q", file + (a.query_latent > 0 ? "q_b_proj" : "q_proj"));
  n.all.back().row_order = query_rows;
  n.linear(engine + "kv", file + "kv_b_proj");
  n.all.back().row_order = key_rows;
}

// A norm of queries or of keys; one with a gamma for each head has it as a matrix (Cohere), or in as many
// tensors (StableLM).
void add_head_norm(WeightNames& n, const ModelSpec& s, int64_t heads, const std::string& engine,
                   const std::string& file) {
  const int64_t d = s.attention.d_qk;
  const bool layer = s.attention.query_key_norm == QueryKeyNorm::layer,
             of_each = s.attention.query_key_norm == QueryKeyNorm::layer_heads;
  if (of_each && file.ends_with("_layernorm")) {
    for (int64_t h = 0; h < heads; ++h)
      n.all.push_back({engine + ".gamma", fmt::format("{}.norms.{}.weight", file, h), false, h * d, d});
    return;
  }
  n.tensor(engine + ".gamma", file + ".weight");
  if (of_each) n.all.back().shape = {heads, d};
  if (layer) n.tensor(engine + ".beta", file + ".bias");
}

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
    if (a.query_key_norm != QueryKeyNorm::none) {
      add_head_norm(n, s, a.heads, e + "attention.query_norm", f + "self_attn." + names.query_key_norms[0]);
      add_head_norm(n, s, a.kv_heads, e + "attention.key_norm", f + "self_attn." + names.query_key_norms[1]);
    }
    n.bias = a.bias;
    const std::string qkv = e + "attention.qkv", self = f + "self_attn.";
    if (a.latent > 0)
      add_latent_attention(n, s, e + "attention.", self);
    else if (names.fused)
      n.linear(qkv, self + "qkv_proj");
    else
      n.parts(qkv, {self + "q_proj", self + "k_proj", self + "v_proj"},
              {a.heads * a.d_qk, a.kv_heads * a.d_qk, a.kv_heads * a.d_vo});
    n.bias = a.out_bias;
    n.linear(e + "attention.out", self + names.out);
    n.bias = s.feed_forward_bias;
    if (s.experts.in_layer(l)) {
      add_experts(n, s, e + "feed_forward.", f + names.mixture + ".", names);
      continue;
    }
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
      return weights_by(s, {});
    }) {
  return {type,
          read,
          write,
          is_rotary_decoder,
          weights,
          "model.",
          is_extra,
          Activation::tanh,
          its.language_model,
          its.classifier};
}

Family deepseek(const char* type, const char* language_model, ModelSpec (*read)(const JsonField&),
                OrderedJson (*write)(const ModelSpec&)) {
  return {
      type,
      read,
      write,
      [](const ModelSpec& s) { return s.architecture == Architecture::decoder && s.attention.latent > 0; },
      [](const ModelSpec& s) { return weights_by(s, {.shared = "shared_experts"}); },
      "model.",
      [](const ModelSpec& s, const std::string& name) {  // the third's layer that predicts a further token
        return is_extra(s, name) || name.starts_with(fmt::format("model.layers.{}.", s.layers));
      },
      Activation::tanh,
      language_model};
}

// YaRN's factor of magnitudes (DeepSeek's yarn_get_mscale).
double yarn_magnitude(double factor, double weight) {
  return factor > 1 ? 0.1 * weight * std::log(factor) + 1 : 1;
}

ModelSpec read_deepseek(const JsonField& c, bool third) {
  ModelSpec s = read_shared(c);
  AttentionSpec& a = s.attention;
  const auto turned = c["qk_rope_head_dim"].integer(2, kMost);
  a.latent = c["kv_lora_rank"].integer(1, kMost);
  a.query_latent = c.integer_or("q_lora_rank", 0, 0, kMost);
  a.kv_heads = a.heads;
  a.d_qk = c["qk_nope_head_dim"].integer(1, kMost) + turned;
  a.d_vo = c["v_head_dim"].integer(1, kMost);
  a.rotary = {.width = turned, .layout = RotaryLayout::interleaved, .base = a.rotary.base};
  if (third && !c.boolean_or("rope_interleave", true)) a.rotary.layout = RotaryLayout::halves;
  if (const auto scaling = rotary_scaling_of(c)) {
    read_rotary_scaling(c, scaling->integer_or("original_max_position_embeddings", s.context, 1, kMost),
                        a.rotary);
    const double all = scaling->number_or("mscale_all_dim", 0), factor = a.rotary.factor;
    if (a.rotary.scaling == RotaryScaling::yarn && !scaling->find("attention_factor"))
      a.rotary.magnitude =
          yarn_magnitude(factor, scaling->number_or("mscale", 1)) / yarn_magnitude(factor, all);
    if (all != 0) {
      const double m = yarn_magnitude(factor, all);
      a.scale = static_cast<float>(m * m / std::sqrt(static_cast<double>(a.d_qk)));
    }
  }
  if (!c.find("n_routed_experts")) return s;
  ExpertsSpec& x = s.experts;
  x.count = c["n_routed_experts"].integer(1, kMost);
  x.chosen = c["num_experts_per_tok"].integer(1, kMost);
  x.hidden = c["moe_intermediate_size"].integer(1, int64_t{1} << 24);
  x.every = c.integer_or("moe_layer_freq", 1, 1, 1 << 20);
  const auto dense = c.integer_or("first_k_dense_replace", third ? 3 : 0, 0, 1 << 20);
  x.first = (dense + x.every - 1) / x.every * x.every;
  const bool none = c.json().contains("n_shared_experts") && !c.find("n_shared_experts");
  x.shared_hidden = none ? 0 : c.integer_or("n_shared_experts", third ? 1 : 0, 0, 1 << 16) * x.hidden;
  const auto score = c.string_or("scoring_func", third ? "sigmoid" : "softmax");
  check(score == (third ? "sigmoid" : "softmax"), "{}: scoring_func: '{}' is not supported here", c.place(),
        score);
  x.score = third ? RouterScore::sigmoid : RouterScore::softmax;
  x.choice_bias = third;
  if (third) x.choice_rate = 0;  // their bias does not move in training
  const auto method = c.string_or("topk_method", third ? "noaux_tc" : "greedy");
  check(third ? method == "noaux_tc" : method == "greedy" || method == "group_limited_greedy",
        "{}: topk_method: '{}' is not supported here", c.place(), method);
  if (method != "greedy") {
    x.groups = c.integer_or("n_group", third ? 8 : 1, 1, kMost);
    x.chosen_groups = c.integer_or("topk_group", third ? 4 : 1, 1, kMost);
  }
  x.renormalized = c.boolean_or("norm_topk_prob", third) && x.chosen > 1;
  // The second leaves weights that sum to 1 as they are.
  x.scale = third || !x.renormalized ? c.number_or("routed_scaling_factor", third ? 2.5F : 1.0F) : 1;
  x.balance = c.number_or("aux_loss_alpha", 0.001F);
  return s;
}

OrderedJson write_deepseek(const ModelSpec& s, const char* type, const char* architecture) {
  const AttentionSpec& a = s.attention;
  const ExpertsSpec& x = s.experts;
  const bool third = x.choice_bias;
  OrderedJson c = write_shared(s, type, architecture);
  c["attention_bias"] = a.bias;
  c["kv_lora_rank"] = a.latent;
  c["q_lora_rank"] = a.query_latent > 0 ? OrderedJson(a.query_latent) : OrderedJson(nullptr);
  c["qk_rope_head_dim"] = a.rotary.width;
  c["qk_nope_head_dim"] = a.d_qk - a.rotary.width;
  c["v_head_dim"] = a.d_vo;
  if (x.choice_bias) c["rope_interleave"] = a.rotary.layout == RotaryLayout::interleaved;
  if (c.contains("rope_scaling")) {
    OrderedJson& scaling = c["rope_scaling"];
    scaling["type"] = scaling["rope_type"];
    scaling.erase("rope_type");
    scaling.erase("attention_factor");
    scaling["original_max_position_embeddings"] = a.rotary.original_context;
    const auto weight = [&](double magnitude) {
      return std::round((magnitude - 1) / (0.1 * std::log(a.rotary.factor)) * 1e5) / 1e5;
    };
    const double m = a.scale > 0 ? std::sqrt(double{a.scale} * std::sqrt(static_cast<double>(a.d_qk))) : 1;
    scaling["mscale"] = weight(a.rotary.magnitude * m);
    scaling["mscale_all_dim"] = weight(m);
  }
  c["n_routed_experts"] = x.count > 0 ? OrderedJson(x.count) : OrderedJson(nullptr);
  if (x.count == 0) return c;
  c["num_experts_per_tok"] = x.chosen;
  c["moe_intermediate_size"] = x.hidden;
  c["moe_layer_freq"] = x.every;
  c["first_k_dense_replace"] = x.first;
  c["n_shared_experts"] = x.shared_hidden / x.hidden;
  c["scoring_func"] = name_of(x.score);
  c["topk_method"] = third ? "noaux_tc" : x.groups > 1 ? "group_limited_greedy" : "greedy";
  c["n_group"] = x.groups;
  c["topk_group"] = x.chosen_groups;
  c["norm_topk_prob"] = x.renormalized;
  c["routed_scaling_factor"] = decimal(x.scale);
  c["aux_loss_alpha"] = decimal(x.balance);
  return c;
}

}  // namespace

const Family& llama_family() {
  static const Family family = decoders("llama", {"LlamaForCausalLM"}, read_shared, [](const ModelSpec& s) {
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
      "mistral", {"MistralForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
        read_window(c, s, 4096);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 8);
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
      "qwen2", {"Qwen2ForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
        // Which layers have it where only some do, versions of its makers' code tell differently.
        if (c.boolean_or("use_sliding_window", false)) {
          check(c.integer_or("max_window_layers", 28, 0, kMost) == 0,
                "{}: max_window_layers: with use_sliding_window only 0 is supported, all layers' windows",
                c.place());
          read_window(c, s, 4096);
        }
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 32);
        s.attention.bias = true;
        s.attention.out_bias = false;
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_shared(s, "qwen2", "Qwen2ForCausalLM");
        c["use_sliding_window"] = !s.attention.patterns.empty();
        if (!s.attention.patterns.empty()) {
          c["sliding_window"] = window_json(s);
          c["max_window_layers"] = 0;
        }
        return c;
      });
  return family;
}

const Family& gemma_family() {
  static const Family family = decoders(
      "gemma", {"GemmaForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
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
        OrderedJson c = write_shared(s, "gemma", "GemmaForCausalLM");
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
        return weights_by(s, {.feed_forward_norm = "pre_feedforward_layernorm",
                              .attention_branch_norm = "post_attention_layernorm",
                              .feed_forward_branch_norm = "post_feedforward_layernorm"});
      });
  return family;
}

const Family& mixtral_family() {
  static const Family family = decoders(
      "mixtral", {"MixtralForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
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
        OrderedJson c = write_shared(s, "mixtral", "MixtralForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["sliding_window"] = window_json(s);
        c["num_local_experts"] = s.experts.count;
        c["num_experts_per_tok"] = s.experts.chosen;
        c["router_aux_loss_coef"] = decimal(s.experts.balance);
        return c;
      },
      [](const ModelSpec& s) {
        return weights_by(s, {.mixture = "block_sparse_moe", .expert = {"w1", "w3", "w2"}});
      });
  return family;
}

const Family& qwen2_moe_family() {
  static const Family family = decoders(
      "qwen2_moe", {"Qwen2MoeForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = qwen2_family().read_config(c);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 16);
        ExpertsSpec& x = s.experts;
        x.count = c.integer_or("num_experts", 60, 1, kMost);
        x.chosen = c.integer_or("num_experts_per_tok", 4, 1, kMost);
        x.hidden = c.integer_or("moe_intermediate_size", 1408, 1, kMost);
        x.every = c.integer_or("decoder_sparse_step", 1, 1, kMost);
        x.first = x.every - 1;
        if (const auto dense = c.find("mlp_only_layers")) {
          const std::vector<int64_t> layers = dense->integers();
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

const Family& deepseek_v2_family() {
  static const Family family = deepseek(
      "deepseek_v2", "DeepseekV2ForCausalLM", [](const JsonField& c) { return read_deepseek(c, false); },
      [](const ModelSpec& s) { return write_deepseek(s, "deepseek_v2", "DeepseekV2ForCausalLM"); });
  return family;
}

const Family& deepseek_v3_family() {
  static const Family family = deepseek(
      "deepseek_v3", "DeepseekV3ForCausalLM", [](const JsonField& c) { return read_deepseek(c, true); },
      [](const ModelSpec& s) { return write_deepseek(s, "deepseek_v3", "DeepseekV3ForCausalLM"); });
  return family;
}

const Family& phi_family() {
  static const Family family = decoders(
      "phi", {"PhiForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
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
        OrderedJson c = write_shared(s, "phi", "PhiForCausalLM");
        c["layer_norm_eps"] = decimal(s.norm_epsilon);
        c["partial_rotary_factor"] = rotated_part(s.attention);
        c["embd_pdrop"] = decimal(s.embedding_dropout);
        c["resid_pdrop"] = decimal(s.residual_dropout);
        c["qk_layernorm"] = s.attention.query_key_norm == QueryKeyNorm::layer;
        return c;
      },
      [](const ModelSpec& s) {
        return weights_by(s, {.query_key_norms = {"q_layernorm", "k_layernorm"},
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
        ModelSpec s = read_shared(c);
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
        OrderedJson c = write_shared(s, "phi3", "Phi3ForCausalLM");
        if (s.attention.rotary.scaling != RotaryScaling::longrope)
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
      "olmo", {"OlmoForCausalLM", ""},
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
        s.attention.clip = c.number_or("clip_qkv", 0);
        s.normalization = Normalization::layer_plain;
        s.norm_epsilon = 1e-5F;
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_shared(s, "olmo", "OlmoForCausalLM");
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
        return weights_by(s, {.attention_norm = nullptr,
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
        ModelSpec s = read_shared(c);
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
        OrderedJson c = write_shared(s, "stablelm", "StableLmForCausalLM");
        c["layer_norm_eps"] = decimal(s.norm_epsilon);
        c["use_qkv_bias"] = s.attention.bias;
        c["use_parallel_residual"] = s.branches == Branches::one_norm;
        c["partial_rotary_factor"] = rotated_part(s.attention);
        c["hidden_dropout"] = decimal(s.residual_dropout);
        c["qk_layernorm"] = s.attention.query_key_norm == QueryKeyNorm::layer_heads;
        return c;
      },
      [](const ModelSpec& s) {
        Names names = {.query_key_norms = {"q_layernorm", "k_layernorm"}};
        if (s.branches == Branches::one_norm) names.feed_forward_norm = nullptr;
        return weights_by(s, names);
      });
  return family;
}

const Family& starcoder2_family() {
  static const Family family = decoders(
      "starcoder2", {"Starcoder2ForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
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
      "granite", {"GraniteForCausalLM", ""},
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
      "cohere", {"CohereForCausalLM", ""},
      [](const JsonField& c) {
        ModelSpec s = read_shared(c);
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
        OrderedJson c = write_shared(s, "cohere", "CohereForCausalLM");
        c["attention_bias"] = s.attention.bias;
        c["layer_norm_eps"] = decimal(s.norm_epsilon);
        c["logit_scale"] = decimal(s.logit_multiplier);
        c["use_qk_norm"] = s.attention.query_key_norm == QueryKeyNorm::layer_heads;
        return c;
      },
      [](const ModelSpec& s) { return weights_by(s, {.feed_forward_norm = nullptr}); });
  return family;
}

}  // namespace qkv
