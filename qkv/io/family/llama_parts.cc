#include "qkv/io/family/llama_parts.h"

#include <cmath>

#include "qkv/base/json_value.h"

namespace qkv {

ModelSpec read_llama_like(const JsonField& c) {
  return read_llama_like(c, read_activation(c, "hidden_act", "silu"));
}

ModelSpec read_llama_like(const JsonField& c, Activation activation) {
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
  s.activation = activation;
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

OrderedJson write_llama_like(const ModelSpec& s, const char* type, const char* architecture) {
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
  write_rotary_scaling(a.rotary, c);
  if (a.rotary.scaling == RotaryScaling::longrope)
    c["original_max_position_embeddings"] = a.rotary.original_context;
  return c;
}

void read_head_width(const JsonField& c, int64_t otherwise, ModelSpec& s) {
  AttentionSpec& a = s.attention;
  const bool said = c.object().contains("head_dim");
  a.d_qk = a.d_vo = a.rotary.width = c.integer_or("head_dim", said ? s.width / a.heads : otherwise, 1, kMost);
}

void read_local_experts(const JsonField& c, ModelSpec& s, const LocalExperts& otherwise) {
  ExpertsSpec& x = s.experts;
  x.count = c.integer_or("num_local_experts", otherwise.count, 1, kMost);
  x.chosen = c.integer_or("num_experts_per_tok", otherwise.chosen, 1, kMost);
  x.hidden = s.hidden;
  x.balance = c.number_or("router_aux_loss_coef", otherwise.balance);
}
void write_local_experts(const ModelSpec& s, OrderedJson& c) {
  c["num_local_experts"] = s.experts.count;
  c["num_experts_per_tok"] = s.experts.chosen;
  c["router_aux_loss_coef"] = decimal(s.experts.balance);
}

void read_query_scalar(const JsonField& c, AttentionSpec& a) {
  const double scalar = c.number_or("query_pre_attn_scalar", 256);
  if (scalar != static_cast<double>(a.d_qk)) a.scale = static_cast<float>(1 / std::sqrt(scalar));
}
double query_scalar(const AttentionSpec& a) {
  const double scalar = a.scale > 0 ? 1 / (double{a.scale} * double{a.scale}) : static_cast<double>(a.d_qk);
  return std::abs(scalar - std::round(scalar)) < 1e-4 ? std::round(scalar) : scalar;
}

int64_t read_kv_heads(const JsonField& c, int64_t heads, int64_t otherwise) {
  const bool said = c.object().contains("num_key_value_heads");
  return c.integer_or("num_key_value_heads", said ? heads : otherwise, 1, kMost);
}

namespace {

// Names of stacked experts; a gate and its values may have their rows in turn.
void add_stacked_experts(WeightNames& n, const ExpertsSpec& x, int64_t width, const std::string& engine,
                         const std::string& file, const LlamaNames& names) {
  const bool in_out = names.transposed_experts;
  const auto add = [&](const std::string& of, const std::string& name, int64_t out, int64_t in, bool halves) {
    WeightName w{engine + of + ".weight", file + name, in_out};
    w.shape = in_out ? std::vector{x.count, in, out} : std::vector{x.count, out, in};
    w.matrices = in_out ? x.count : 1;
    WeightName bias{engine + of + ".bias", file + name + "_bias"};
    bias.shape = {x.count, out};
    for (int64_t r = 0; halves && names.interleaved_experts && r < x.count * out; ++r) {
      const int64_t row = r % out, half = out / 2;
      w.row_order.push_back(r - row + (row < half ? 2 * row : 2 * (row - half) + 1));
    }
    bias.row_order = w.row_order;
    n.all.push_back(std::move(w));
    if (x.bias) n.all.push_back(std::move(bias));
  };
  add("up", names.expert[0], 2 * x.hidden, width, true);
  add("down", names.expert[1], width, x.hidden, false);
}

// The experts' matrices are stacked in the engine.
void add_experts(WeightNames& n, const ExpertsSpec& x, int64_t width, const std::string& engine,
                 const std::string& file, const LlamaNames& names) {
  n.bias = x.router_bias;
  n.linear(engine + "router", file + names.router);
  n.bias = false;
  if (x.choice_bias) {
    n.tensor(engine + "router.choice_bias", file + names.choice_bias);
    if (names.choice_bias_in_row) n.all.back().shape = {1, x.count};
  }
  if (names.stacked_experts) add_stacked_experts(n, x, width, engine + "experts.", file, names);
  for (int64_t i = 0; i < x.count && !names.stacked_experts; ++i) {
    const std::string expert = fmt::format("{}experts.{}.", file, i), up = engine + "experts.up.weight";
    const int64_t first = 2 * i * x.hidden;
    n.all.push_back({up, expert + names.expert[0] + ".weight", false, first, x.hidden});
    n.all.push_back({up, expert + names.expert[1] + ".weight", false, first + x.hidden, x.hidden});
    n.all.push_back(
        {engine + "experts.down.weight", expert + names.expert[2] + ".weight", false, i * width, width});
  }
  if (x.shared_hidden > 0) {
    const std::string shared = file + names.shared + ".";
    n.parts(engine + "shared.up", {shared + "gate_proj", shared + "up_proj"},
            {x.shared_hidden, x.shared_hidden});
    n.linear(engine + "shared.down", shared + "down_proj");
  }
  if (x.shared_gated) n.linear(engine + "shared_gate", file + "shared_expert_gate");
}

// A norm of queries or of keys. If it has a gamma for each head, this is a matrix (Cohere), or one tensor
// per head (StableLM).
void add_head_norm(WeightNames& n, const AttentionSpec& a, int64_t heads, const std::string& engine,
                   const std::string& file) {
  const int64_t d = a.d_qk;
  const bool layer = a.query_key_norm == QueryKeyNorm::layer,
             of_each = a.query_key_norm == QueryKeyNorm::layer_heads;
  if (of_each && file.ends_with("_layernorm")) {
    for (int64_t h = 0; h < heads; ++h)
      n.all.push_back({engine + ".gamma", fmt::format("{}.norms.{}.weight", file, h), false, h * d, d});
    return;
  }
  n.tensor(engine + ".gamma", file + ".weight");
  if (of_each) n.all.back().shape = {heads, d};
  if (layer) n.tensor(engine + ".beta", file + ".bias");
}

// Queries and the gates of what they find are one tensor, in turn for each head.
void add_gated_projections(WeightNames& n, const AttentionSpec& a, const std::string& engine,
                           const std::string& file) {
  const int64_t queries = a.heads * a.d_qk, keys = a.kv_heads * a.d_qk;
  const size_t first = n.all.size();
  std::vector<int64_t> rows;
  for (const int64_t part : {1, 0})
    for (int64_t h = 0; h < a.heads; ++h)
      for (int64_t i = 0; i < a.d_qk; ++i) rows.push_back((2 * h + part) * a.d_qk + i);
  n.parts(engine, {file + "q_proj", file + "k_proj", file + "v_proj"}, {2 * queries, keys, keys});
  for (size_t i = first; i < n.all.size(); ++i)
    if (n.all[i].first_row == 0) n.all[i].row_order = rows;
}

// The tensors of attention in a layer.
void add_attention(WeightNames& n, const ModelSpec& s, const AttentionSpec& a, const std::string& engine,
                   const std::string& file, const LlamaNames& names) {
  if (a.sinks) n.tensor(engine + "sinks", file + "sinks");
  if (a.query_key_norm != QueryKeyNorm::none && a.query_key_norm != QueryKeyNorm::unit_rotated) {
    add_head_norm(n, a, a.heads, engine + "query_norm", file + names.query_key_norms[0]);
    if (!a.reused_keys) add_head_norm(n, a, a.kv_heads, engine + "key_norm", file + names.query_key_norms[1]);
  }
  n.bias = a.bias;
  const std::string qkv = engine + "qkv";
  if (names.attention != nullptr)
    names.attention(n, s, engine, file);
  else if (names.fused)
    n.linear(qkv, file + "qkv_proj");
  else if (a.reused_keys)
    n.linear(qkv, file + "q_proj");
  else if (a.values_of_keys)
    n.parts(qkv, {file + "q_proj", file + "k_proj"}, {a.heads * a.d_qk, a.kv_heads * a.d_qk});
  else if (a.gated)
    add_gated_projections(n, a, qkv, file);
  else
    n.parts(qkv, {file + "q_proj", file + "k_proj", file + "v_proj"},
            {a.heads * a.d_qk, a.kv_heads * a.d_qk, a.kv_heads * a.d_vo});
  n.bias = a.out_bias;
  n.linear(engine + "out", file + names.out);
}

}  // namespace

std::vector<WeightName> weights_named_as_llama(const ModelSpec& s, const LlamaNames& names) {
  WeightNames n;
  n.tensor("embedding.token", "model.embed_tokens.weight");
  const auto norm = [&](const std::string& engine, const std::string& file) {
    if (s.normalization == Normalization::layer_plain) return;
    n.bias = s.normalization == Normalization::layer || s.normalization == Normalization::layer_plus_one;
    n.norm(engine, file);
  };
  for (int64_t l = 0; l < s.layers + s.mtp.layers; ++l) {
    const BlockSpec& b = s.block(std::min(l, s.layers - 1));
    const AttentionSpec& a = b.attention;
    const std::string e = fmt::format("decoder.block.{}.", l), f = fmt::format("model.layers.{}.", l);
    const auto norm_if = [&](const char* engine, const char* file) {
      if (file != nullptr) norm(e + engine, f + file);
    };
    const std::string mixer = std::string(b.mixer.part()) + ".";
    norm_if((mixer + "norm").c_str(), names.attention_norm);
    norm_if((mixer + "branch_norm").c_str(), names.attention_branch_norm);
    norm_if("feed_forward.norm", names.feed_forward_norm);
    norm_if("feed_forward.branch_norm", names.feed_forward_branch_norm);
    if (b.mixer.attends())
      add_attention(n, s, a, e + "attention.", f + "self_attn.", names);
    else
      names.mixer(n, s, b, e + mixer, f);
    if (b.hidden == 0) continue;
    n.bias = b.feed_forward_bias;
    const std::string network = f + names.network + ".";
    if (b.experts.in_layer(l)) {
      add_experts(n, b.experts, s.width, e + "feed_forward.", f + names.mixture + ".", names);
      continue;
    }
    if (names.fused) {
      n.linear(e + "feed_forward.up", network + "gate_up_proj");
    } else if (names.up.size() == 1) {
      n.linear(e + "feed_forward.up", network + names.up[0]);
    } else {
      n.parts(e + "feed_forward.up", {network + names.up[0], network + names.up[1]}, {b.hidden, b.hidden});
    }
    n.linear(e + "feed_forward.down", network + names.down);
    if (b.activation == Activation::xielu)
      for (const char* alpha : {"alpha_p", "alpha_n"})
        n.tensor(e + "feed_forward." + alpha, network + "act_fn." + alpha);
  }
  for (int64_t k = 1; k <= s.mtp.layers; ++k) {
    const std::string e = fmt::format("mtp.{}.", k), f = fmt::format("model.layers.{}.", s.layers + k - 1);
    norm(e + "norm", f + "shared_head.norm");
    norm(e + "embedding_norm", f + "enorm");
    norm(e + "hidden_norm", f + "hnorm");
    n.bias = false;
    n.linear(e + "projection", f + "eh_proj");
  }
  norm("decoder.norm", names.last_norm);
  n.untied(s, "lm_head.weight");
  if (s.unembedding_bias) n.tensor("unembedding.bias", "lm_head.bias");
  return n.all;
}

bool is_extra_in_llama(const ModelSpec& s, const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq") || (s.tied && name == "lm_head.weight");
}

void read_mtp(const JsonField& c, ModelSpec& s) {
  const int64_t modules = c.integer_or("num_nextn_predict_layers", 0, 0, kMost);
  if (modules > 0) s.mtp = {.layers = modules, .form = MtpForm::joined};
}

void write_mtp(const ModelSpec& s, OrderedJson& c) {
  c["num_nextn_predict_layers"] = s.mtp.form == MtpForm::joined ? s.mtp.layers : 0;
}

std::vector<TensorCopy> mtp_copies(const ModelSpec& s) {
  std::vector<TensorCopy> copies;
  const std::string token = "model.embed_tokens.weight";
  for (int64_t l = s.layers; l < s.layers + s.mtp.layers; ++l) {
    copies.push_back({fmt::format("model.layers.{}.embed_tokens.weight", l), token});
    copies.push_back(
        {fmt::format("model.layers.{}.shared_head.head.weight", l), s.tied ? token : "lm_head.weight"});
  }
  return copies;
}

bool is_extra_or_predicts_further(const ModelSpec& s, const std::string& name) {
  constexpr std::string_view kLayer = "model.layers.";
  if (is_extra_in_llama(s, name)) return true;
  if (!name.starts_with(kLayer)) return false;
  const std::string rest = name.substr(kLayer.size());
  const size_t digits = rest.find_first_not_of("0123456789");
  constexpr size_t kMostDigits = 6;
  if (digits == 0 || digits > kMostDigits) return false;
  return std::stoll(rest) >= s.layers;
}

std::vector<WeightName> llama_weights(const ModelSpec& s) {
  return weights_named_as_llama(s, {});
}

namespace {

// True for the common kind of decoder; family_for() checks the rest.
bool is_rotary_decoder(const ModelSpec& s) {
  return s.architecture == Architecture::decoder && has_decoder_head(s) && s.positions == Positions::rotary &&
         s.attention.d_qk == s.attention.d_vo;
}

}  // namespace

Family llama_like(const char* type, const DecoderClass& its, ModelSpec (*read)(const JsonField&),
                  OrderedJson (*write)(const ModelSpec&),
                  std::vector<WeightName> (*weights)(const ModelSpec&)) {
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

}  // namespace qkv
