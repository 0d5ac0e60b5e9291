// Mixtures of experts other than Mixtral, and DeepSeek's latent attention.

#include "qkv/base/json_value.h"
#include "qkv/io/gguf/architectures_parts.h"

namespace qkv {
namespace {

GgufArchitecture qwen2moe() {
  return {.name = "qwen2moe",
          .types = {"qwen2_moe"},
          .fields =
              joined<GgufField>({gguf_decoder_fields(kGgufRmsEpsilon, "rms_norm_eps"),
                                 gguf_expert_fields("num_experts"),
                                 {{"expert_feed_forward_length", "moe_intermediate_size"},
                                  {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}}}),
          .tensors = joined<GgufTensorName>(
              {gguf_embedding_tensors(),
               gguf_pre_norm_tensors(),
               gguf_attention_tensors(),
               gguf_expert_tensors(),
               {{"blk.{}.ffn_gate_inp_shexp", "model.layers.{}.mlp.shared_expert_gate", GgufForm::one_row},
                {"blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"},
                {"blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"},
                {"blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"}}}),
          .rotary = {.base = "rope_theta"},
          .read = [](const GgufKeys&, Json& c) {
            c["model_type"] = "qwen2_moe";
            c["norm_topk_prob"] = false;
          }};
}

GgufArchitecture qwen3moe() {
  return {.name = "qwen3moe",
          .types = {"qwen3_moe"},
          .fields = joined<GgufField>({gguf_decoder_fields(kGgufRmsEpsilon, "rms_norm_eps"),
                                       gguf_head_fields(),
                                       gguf_expert_fields("num_experts"),
                                       {{"expert_feed_forward_length", "moe_intermediate_size"}}}),
          .tensors = joined<GgufTensorName>({gguf_embedding_tensors(), gguf_pre_norm_tensors(),
                                             gguf_attention_tensors(), gguf_head_norm_tensors(),
                                             gguf_expert_tensors()}),
          .rotary = {.base = "rope_theta"},
          .read = [](const GgufKeys& keys, Json& c) {
            c["model_type"] = "qwen3_moe";
            c["attention_bias"] = first_layer_has(keys, "attn_q.bias");
            c["norm_topk_prob"] = true;
          }};
}

// Hugging Face has the gate and the values of an expert in one matrix, with their columns in turn.
GgufArchitecture gpt_oss() {
  return {
      .name = "gpt-oss",
      .types = {"gpt_oss"},
      .fields = joined<GgufField>({gguf_decoder_fields(kGgufRmsEpsilon, "rms_norm_eps"),
                                   gguf_head_fields(),
                                   gguf_expert_fields("num_local_experts"),
                                   {{"expert_feed_forward_length", "intermediate_size"},
                                    {"attention.sliding_window", "sliding_window"}}}),
      .tensors = joined<GgufTensorName>(
          {gguf_embedding_tensors(),
           gguf_attention_tensors(),
           {{"blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
            {"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
            {"blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.sinks"},
            {.gguf = "blk.{}.ffn_gate_inp", .file = "model.layers.{}.mlp.router", .wide = true},
            {"blk.{}.ffn_gate_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj",
             GgufForm::even_columns},
            {"blk.{}.ffn_up_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj", GgufForm::odd_columns},
            {"blk.{}.ffn_down_exps.weight", "model.layers.{}.mlp.experts.down_proj",
             GgufForm::stack_transposed},
            {.gguf = "blk.{}.ffn_gate_exps.bias",
             .file = "model.layers.{}.mlp.experts.gate_up_proj_bias",
             .form = GgufForm::even_columns,
             .wide = true},
            {.gguf = "blk.{}.ffn_up_exps.bias",
             .file = "model.layers.{}.mlp.experts.gate_up_proj_bias",
             .form = GgufForm::odd_columns,
             .wide = true},
            {.gguf = "blk.{}.ffn_down_exps.bias",
             .file = "model.layers.{}.mlp.experts.down_proj_bias",
             .wide = true}}}),
      .rotary = {.base = "rope_theta"},
      .windows = {.period = 2},
      .read = [](const GgufKeys&, Json& c) {
        c["model_type"] = "gpt_oss";
        c["attention_bias"] = true;
        // Its bounds of frequencies are not rounded, which files do not say.
        if (c.contains("rope_scaling"))
          c["rope_scaling"]["truncate"] = false;
        else
          c["rope_scaling"] = nullptr;
      }};
}

// DeepSeek V2 and V3. Attention is stored as that of one key head, the latent vector and the rotated columns.
void read_deepseek(const GgufKeys& keys, Json& c) {
  enum Gating : int64_t { softmax = 1, sigmoid = 2 };
  const int64_t gating = keys.integer_or("expert_gating_func", softmax);
  check(gating == softmax || gating == sigmoid, "{}: key '{}': {} is not supported (1 and 2 are)",
        keys.file().path, keys.full("expert_gating_func"), gating);
  const bool third = gating == sigmoid;
  c["model_type"] = third ? "deepseek_v3" : "deepseek_v2";
  keys.integer_or("attention.head_count_kv", 1);
  c["num_key_value_heads"] = c.at("num_attention_heads");
  // Files before the split of attn_kv_b have the widths of whole heads.
  const bool split = keys.has("attention.key_length_mla");
  const int64_t key = keys.integer(split ? "attention.key_length_mla" : "attention.key_length"),
                turned = c.at("qk_rope_head_dim").get<int64_t>();
  check(key > turned, "{}: key '{}': {} is not more than the {} rotated", keys.file().path,
        keys.full("attention.key_length_mla"), key, turned);
  c["qk_nope_head_dim"] = key - turned;
  c["v_head_dim"] = keys.integer(split ? "attention.value_length_mla" : "attention.value_length");
  for (const char* known : {"attention.key_length", "attention.value_length"}) keys.integer_or(known, 0);
  // Hugging Face's defaults are not those of files without a key.
  const Json defaults = {{"n_group", 1},          {"topk_group", 1},         {"first_k_dense_replace", 0},
                         {"n_shared_experts", 0}, {"norm_topk_prob", false}, {"routed_scaling_factor", 1.0}};
  for (const auto& [field, value] : defaults.items())
    if (!c.contains(field)) c[field] = value;
  c["topk_method"] = third ? "noaux_tc" : c["n_group"] > 1 ? "group_limited_greedy" : "greedy";

  if (third) c["rope_interleave"] = true;
  if (c.value("n_routed_experts", 0) == 0) c.erase("n_routed_experts");
  if (!c.contains("rope_scaling") || c["rope_scaling"]["rope_type"] != "yarn") return;
  const double all = keys.number_or("rope.scaling.yarn_log_multiplier", 0) * 10;
  Json& scaling = c["rope_scaling"];
  scaling["type"] = "yarn";
  scaling.erase("rope_type");
  scaling["mscale"] = all == 0 ? 1.0 : all;
  scaling["mscale_all_dim"] = all;
}

void write_deepseek(const Json& c, GgufKeyWriter& keys) {
  const int64_t latent = c.at("kv_lora_rank").get<int64_t>(),
                turned = c.at("qk_rope_head_dim").get<int64_t>();
  const bool third = c.at("model_type") == "deepseek_v3";
  keys.integer("attention.head_count_kv", 1);
  keys.integer("attention.key_length", latent + turned);
  keys.integer("attention.value_length", latent);
  keys.integer("attention.key_length_mla", c.at("qk_nope_head_dim").get<int64_t>() + turned);
  keys.integer("attention.value_length_mla", c.at("v_head_dim").get<int64_t>());
  keys.integer("expert_gating_func", third ? 2 : 1);
  if (!c.contains("rope_scaling") || !c.at("rope_scaling").contains("mscale_all_dim")) return;
  keys.number("rope.scaling.yarn_log_multiplier",
              c.at("rope_scaling").at("mscale_all_dim").get<double>() / 10);
}

GgufArchitecture deepseek2() {
  const auto optional = [](const char* key, const char* field, GgufFieldKind kind = GgufFieldKind::integer) {
    return GgufField{key, field, kind, false};
  };
  return {
      .name = "deepseek2",
      .types = {"deepseek_v2", "deepseek_v3"},
      .fields = {{"context_length", "max_position_embeddings"},
                 {"embedding_length", "hidden_size"},
                 {"block_count", "num_hidden_layers"},
                 {"feed_forward_length", "intermediate_size"},
                 {"attention.head_count", "num_attention_heads"},
                 {kGgufRmsEpsilon, "rms_norm_eps", GgufFieldKind::number},
                 {"attention.kv_lora_rank", "kv_lora_rank"},
                 optional("attention.q_lora_rank", "q_lora_rank"),
                 {"rope.dimension_count", "qk_rope_head_dim"},
                 optional("expert_count", "n_routed_experts"),
                 optional("expert_used_count", "num_experts_per_tok"),
                 optional("expert_feed_forward_length", "moe_intermediate_size"),
                 optional("expert_shared_count", "n_shared_experts"),
                 optional("leading_dense_block_count", "first_k_dense_replace"),
                 optional("expert_group_count", "n_group"),
                 optional("expert_group_used_count", "topk_group"),
                 optional("expert_weights_scale", "routed_scaling_factor", GgufFieldKind::number),
                 optional("expert_weights_norm", "norm_topk_prob", GgufFieldKind::flag)},
      .tensors = joined<GgufTensorName>(
          {gguf_embedding_tensors(),
           gguf_pre_norm_tensors(),
           gguf_gated_tensors(),
           gguf_expert_tensors(),
           {{"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"},
            {"blk.{}.attn_q_a", "model.layers.{}.self_attn.q_a_proj"},
            {"blk.{}.attn_q_a_norm", "model.layers.{}.self_attn.q_a_layernorm"},
            {"blk.{}.attn_q_b", "model.layers.{}.self_attn.q_b_proj"},
            {"blk.{}.attn_kv_a_mqa", "model.layers.{}.self_attn.kv_a_proj_with_mqa"},
            {"blk.{}.attn_kv_a_norm", "model.layers.{}.self_attn.kv_a_layernorm"},
            {"blk.{}.attn_k_b", "model.layers.{}.self_attn.kv_b_proj", GgufForm::latent_keys},
            {"blk.{}.attn_v_b", "model.layers.{}.self_attn.kv_b_proj", GgufForm::latent_values},
            {.gguf = "blk.{}.attn_kv_b", .file = "model.layers.{}.self_attn.kv_b_proj", .only_read = true},
            {"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
            {"blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.gate.e_score_correction_bias"},
            {"blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_experts.gate_proj"},
            {"blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_experts.up_proj"},
            {"blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_experts.down_proj"}}}),
      .rotary = {.base = "rope_theta", .own_width = true},
      .read = read_deepseek,
      .write = write_deepseek};
}

}  // namespace

const std::vector<GgufArchitecture>& gguf_architectures_experts() {
  static const std::vector<GgufArchitecture> all = {qwen2moe(), qwen3moe(), gpt_oss(), deepseek2()};
  return all;
}

}  // namespace qkv
