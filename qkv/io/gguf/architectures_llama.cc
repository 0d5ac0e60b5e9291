// Llama and the decoders that are most like it.

#include "qkv/base/json_value.h"
#include "qkv/io/gguf/architectures_parts.h"

namespace qkv {
namespace {

constexpr double kOlmoEpsilon = 1e-5;  // that of all its models

// Also Mistral and Mixtral. Their files have queries and keys for interleaved rotation.
GgufArchitecture llama() {
  return {
      .name = "llama",
      .types = {"llama", "mistral", "mixtral"},
      .fields = joined<GgufField>(
          {gguf_decoder_fields(kGgufRmsEpsilon, "rms_norm_eps"),
           gguf_head_fields(),
           {{.key = "expert_count", .field = "num_local_experts", .required = false},
            {.key = "expert_used_count", .field = "num_experts_per_tok", .required = false},
            {.key = "attention.sliding_window", .field = "sliding_window", .required = false}}}),
      .tensors = joined<GgufTensorName>(
          {gguf_embedding_tensors(),
           gguf_pre_norm_tensors(),
           gguf_attention_tensors(GgufForm::rotary_queries, GgufForm::rotary_keys),
           gguf_gated_tensors(),
           {{.gguf = "blk.{}.ffn_gate_inp", .file = "model.layers.{}.block_sparse_moe.gate", .wide = true},
            {"blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.{}.w1", GgufForm::stacked},
            {"blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.{}.w2", GgufForm::stacked},
            {"blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.{}.w3", GgufForm::stacked},
            {.gguf = "blk.{}.ffn_gate.{}",
             .file = "model.layers.{}.block_sparse_moe.experts.{}.w1",
             .only_read = true},
            {.gguf = "blk.{}.ffn_down.{}",
             .file = "model.layers.{}.block_sparse_moe.experts.{}.w2",
             .only_read = true},
            {.gguf = "blk.{}.ffn_up.{}",
             .file = "model.layers.{}.block_sparse_moe.experts.{}.w3",
             .only_read = true}}}),
      .rotary = {.base = "rope_theta"},
      .read = [](const GgufKeys& keys, Json& c) {
        if (c.value("num_local_experts", 0) == 0) {
          c.erase("num_local_experts");
          c.erase("num_experts_per_tok");
        }
        c["model_type"] = c.contains("num_local_experts") ? "mixtral"
                          : c.contains("sliding_window")  ? "mistral"
                                                          : "llama";
        if (!c.contains("sliding_window")) c["sliding_window"] = nullptr;
        c["attention_bias"] = first_layer_has(keys, "attn_q.bias");
        c["mlp_bias"] = first_layer_has(keys, "ffn_gate.bias");
      }};
}

GgufArchitecture qwen2() {
  return {.name = "qwen2",
          .types = {"qwen2"},
          .fields = gguf_decoder_fields(kGgufRmsEpsilon, "rms_norm_eps"),
          .tensors = gguf_llama_tensors(),
          .rotary = {.base = "rope_theta"},
          .read = [](const GgufKeys&, Json& c) { c["model_type"] = "qwen2"; }};
}

GgufArchitecture qwen3() {
  return {
      .name = "qwen3",
      .types = {"qwen3"},
      .fields = joined<GgufField>({gguf_decoder_fields(kGgufRmsEpsilon, "rms_norm_eps"), gguf_head_fields()}),
      .tensors = joined<GgufTensorName>({gguf_llama_tensors(), gguf_head_norm_tensors()}),
      .rotary = {.base = "rope_theta"},
      .read = [](const GgufKeys& keys, Json& c) {
        c["model_type"] = "qwen3";
        c["attention_bias"] = first_layer_has(keys, "attn_q.bias");
      }};
}

// Its queries and keys are as Llama's, and its norms have no weights.
GgufArchitecture olmo() {
  return {.name = "olmo",
          .types = {"olmo"},
          .fields = {{"context_length", "max_position_embeddings"},
                     {"embedding_length", "hidden_size"},
                     {"block_count", "num_hidden_layers"},
                     {"feed_forward_length", "intermediate_size"},
                     {"attention.head_count", "num_attention_heads"},
                     {.key = "attention.head_count_kv",
                      .field = "num_key_value_heads",
                      .otherwise = "attention.head_count"},
                     {"attention.clamp_kqv", "clip_qkv", GgufFieldKind::number, false}},
          .tensors =
              joined<GgufTensorName>({{{"token_embd", "model.embed_tokens"}, {"output", "lm_head"}},
                                      gguf_attention_tensors(GgufForm::rotary_queries, GgufForm::rotary_keys),
                                      gguf_gated_tensors()}),
          .rotary = {.base = "rope_theta"},
          .read =
              [](const GgufKeys& keys, Json& c) {
                c["model_type"] = "olmo";
                const double epsilon = keys.number_or(kGgufLayerEpsilon, kOlmoEpsilon);
                check(epsilon > 0.999 * kOlmoEpsilon && epsilon < 1.001 * kOlmoEpsilon,
                      "{}: key '{}': only {} is supported", keys.file().path, keys.full(kGgufLayerEpsilon),
                      kOlmoEpsilon);
              },
          .write = [](const Json&, GgufKeyWriter& keys) { keys.number(kGgufLayerEpsilon, kOlmoEpsilon); }};
}

// With a window, it is Olmo 3, whose scaling is that of the layers without.
GgufArchitecture olmo2() {
  return {.name = "olmo2",
          .types = {"olmo2", "olmo3"},
          .fields = joined<GgufField>(
              {gguf_decoder_fields(kGgufRmsEpsilon, "rms_norm_eps"),
               {{.key = "attention.sliding_window", .field = "sliding_window", .required = false}}}),
          .tensors = joined<GgufTensorName>(
              {gguf_embedding_tensors(),
               gguf_attention_tensors(),
               gguf_head_norm_tensors(),
               gguf_gated_tensors(),
               {{"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
                {"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"}}}),
          .rotary = {.base = "rope_theta"},
          .windows = {.period = 4},
          .read = [](const GgufKeys&, Json& c) {
            if (c.value("sliding_window", 0) == 0) {
              c.erase("sliding_window");
              c.erase("layer_types");
            }
            c["model_type"] = c.contains("sliding_window") ? "olmo3" : "olmo2";
          }};
}

GgufArchitecture command_r() {
  return {.name = "command-r",
          .types = {"cohere"},
          .fields = joined<GgufField>({gguf_decoder_fields(kGgufLayerEpsilon, "layer_norm_eps"),
                                       {{"logit_scale", "logit_scale", GgufFieldKind::number}}}),
          .tensors = joined<GgufTensorName>({{{"token_embd", "model.embed_tokens"},
                                              {"output_norm", "model.norm"},
                                              {"blk.{}.attn_norm", "model.layers.{}.input_layernorm"}},
                                             gguf_attention_tensors(),
                                             gguf_head_norm_tensors(),
                                             gguf_gated_tensors()}),
          .rotary = {.base = "rope_theta"},
          .read = [](const GgufKeys& keys, Json& c) {
            c["model_type"] = "cohere";
            c["attention_bias"] = first_layer_has(keys, "attn_q.bias");
            c["use_qk_norm"] = first_layer_has(keys, "attn_q_norm.weight");
          }};
}

GgufArchitecture stablelm() {
  return {
      .name = "stablelm",
      .types = {"stablelm"},
      .fields = gguf_decoder_fields(kGgufLayerEpsilon, "layer_norm_eps"),
      .tensors = joined<GgufTensorName>(
          {gguf_llama_tensors(),
           {{"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm.norms.{}", GgufForm::stacked},
            {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm.norms.{}", GgufForm::stacked}}}),
      .rotary = {.base = "rope_theta", .part = "partial_rotary_factor"},
      .read =
          [](const GgufKeys& keys, Json& c) {
            c["model_type"] = "stablelm";
            c["use_qkv_bias"] = first_layer_has(keys, "attn_q.bias");
            c["qk_layernorm"] = first_layer_has(keys, "attn_q_norm.weight");
            c["use_parallel_residual"] = !first_layer_has(keys, "ffn_norm.weight");
          },
      .write =
          [](const Json& c, GgufKeyWriter& keys) {
            keys.flag("use_parallel_residual", c.at("use_parallel_residual").get<bool>());
          },
      // Older converters wrote true for every model; the tensors tell.
      .harmless = {"use_parallel_residual"}};
}

GgufArchitecture starcoder2() {
  return {.name = "starcoder2",
          .types = {"starcoder2"},
          .fields = joined<GgufField>(
              {gguf_decoder_fields(kGgufLayerEpsilon, "norm_epsilon"),
               {{.key = "attention.sliding_window", .field = "sliding_window", .required = false}}}),
          .tensors = joined<GgufTensorName>({gguf_embedding_tensors(),
                                             gguf_pre_norm_tensors(),
                                             gguf_attention_tensors(),
                                             {{"blk.{}.ffn_up", "model.layers.{}.mlp.c_fc"},
                                              {"blk.{}.ffn_down", "model.layers.{}.mlp.c_proj"}}}),
          .rotary = {.base = "rope_theta"},
          .read = [](const GgufKeys& keys, Json& c) {
            c["model_type"] = "starcoder2";
            c["use_bias"] = first_layer_has(keys, "attn_q.bias");
          }};
}

}  // namespace

const std::vector<GgufArchitecture>& gguf_architectures_llama() {
  static const std::vector<GgufArchitecture> all = {llama(), qwen2(),     qwen3(),    olmo(),
                                                    olmo2(), command_r(), stablelm(), starcoder2()};
  return all;
}

}  // namespace qkv
