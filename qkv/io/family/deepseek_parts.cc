#include "qkv/io/family/deepseek_parts.h"

#include <cmath>

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {
namespace {

// In the file, the rotated columns of a head are the last ones. In the projection from the latent, a head's
// key and value are adjacent.
void add_latent_attention(WeightNames& n, const ModelSpec& s, const std::string& engine,
                          const std::string& file) {
  const AttentionSpec& a = s.attention;
  const bool query_latent = s.mixer.get_if<LatentMixer>()->query_latent > 0;
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
  if (query_latent) n.linear(engine + "q_latent", file + "q_a_proj");
  n.bias = false;
  n.norm(engine + "kv_norm", file + "kv_a_layernorm");
  if (query_latent) n.norm(engine + "q_norm", file + "q_a_layernorm");
  n.linear(engine + "q", file + (query_latent ? "q_b_proj" : "q_proj"));
  n.all.back().row_order = query_rows;
  n.linear(engine + "kv", file + "kv_b_proj");
  n.all.back().row_order = key_rows;
}

}  // namespace

ModelSpec read_deepseek(const JsonField& c, bool third) {
  ModelSpec s = read_llama_like(c);
  AttentionSpec& a = s.attention;
  const auto turned = c["qk_rope_head_dim"].integer(2, kMost);
  s.mixer = LatentMixer{.latent = c["kv_lora_rank"].integer(1, kMost),
                        .query_latent = c.integer_or("q_lora_rank", 0, 0, kMost)};
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
  if (third) x.choice_rate = 0;  // its bias is fixed in training
  const auto method = c.string_or("topk_method", third ? "noaux_tc" : "greedy");
  check(third ? method == "noaux_tc" : method == "greedy" || method == "group_limited_greedy",
        "{}: topk_method: '{}' is not supported here", c.place(), method);
  if (method != "greedy") {
    x.groups = c.integer_or("n_group", third ? 8 : 1, 1, kMost);
    x.chosen_groups = c.integer_or("topk_group", third ? 4 : 1, 1, kMost);
  }
  x.renormalized = c.boolean_or("norm_topk_prob", third) && x.chosen > 1;
  // V2 does not scale weights that sum to 1.
  x.scale = third || !x.renormalized ? c.number_or("routed_scaling_factor", third ? 2.5F : 1.0F) : 1;
  x.balance = c.number_or("aux_loss_alpha", 0.001F);
  return s;
}

OrderedJson write_deepseek(const ModelSpec& s, const char* type, const char* architecture) {
  const AttentionSpec& a = s.attention;
  const ExpertsSpec& x = s.experts;
  const bool third = x.choice_bias;
  OrderedJson c = write_llama_like(s, type, architecture);
  c["attention_bias"] = a.bias;
  const LatentMixer& m = *s.mixer.get_if<LatentMixer>();
  c["kv_lora_rank"] = m.latent;
  c["q_lora_rank"] = number_or_null(m.query_latent);
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
  c["n_routed_experts"] = number_or_null(x.count);
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

Family deepseek_like(const char* type, const char* language_model, ModelSpec (*read)(const JsonField&),
                     OrderedJson (*write)(const ModelSpec&)) {
  Family family = llama_like(type, {language_model, ""}, read, write, [](const ModelSpec& s) {
    return weights_named_as_llama(s, {.shared = "shared_experts", .attention = add_latent_attention});
  });
  family.expresses = [](const ModelSpec& s) {
    return s.architecture == Architecture::decoder && s.mixer.get_if<LatentMixer>() != nullptr;
  };
  family.ignores = is_extra_or_predicts_further;
  family.copies = mtp_copies;
  return family;
}

}  // namespace qkv
