// Parts that the tables of architectures share.
#pragma once

#include <fmt/core.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "qkv/io/gguf/architecture.h"

namespace qkv {

// Several lists in turn.
template <typename T>
std::vector<T> joined(std::initializer_list<std::vector<T>> lists) {
  std::vector<T> all;
  for (const std::vector<T>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

// The sizes of a decoder with rotary positions, and the epsilon of its norms.
inline std::vector<GgufField> gguf_decoder_fields(const char* epsilon_key, const char* epsilon) {
  return {
      {"context_length", "max_position_embeddings"},
      {"embedding_length", "hidden_size"},
      {"block_count", "num_hidden_layers"},
      {"feed_forward_length", "intermediate_size"},
      {"attention.head_count", "num_attention_heads"},
      {.key = "attention.head_count_kv", .field = "num_key_value_heads", .otherwise = "attention.head_count"},
      {epsilon_key, epsilon, GgufFieldKind::number}};
}
inline constexpr const char *kGgufRmsEpsilon = "attention.layer_norm_rms_epsilon",
                            *kGgufLayerEpsilon = "attention.layer_norm_epsilon";

// The width of heads where it need not be that of the model over their number.
inline std::vector<GgufField> gguf_head_fields() {
  return {{.key = "attention.key_length", .field = "head_dim", .required = false},
          {.key = "attention.value_length", .field = "head_dim", .required = false}};
}

inline std::vector<GgufField> gguf_expert_fields(const char* count) {
  return {{"expert_count", count}, {"expert_used_count", "num_experts_per_tok"}};
}

// Tensors named as Llama's.
inline std::vector<GgufTensorName> gguf_attention_tensors(GgufForm queries = GgufForm::same,
                                                          GgufForm keys = GgufForm::same) {
  return {{"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", queries},
          {"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", keys},
          {"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"},
          {"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"}};
}
inline std::vector<GgufTensorName> gguf_gated_tensors() {
  return {{"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"},
          {"blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"},
          {"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"}};
}
inline std::vector<GgufTensorName> gguf_expert_tensors() {
  return {{.gguf = "blk.{}.ffn_gate_inp", .file = "model.layers.{}.mlp.gate", .wide = true},
          {"blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{}.gate_proj", GgufForm::stacked},
          {"blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{}.up_proj", GgufForm::stacked},
          {"blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{}.down_proj", GgufForm::stacked}};
}
inline std::vector<GgufTensorName> gguf_head_norm_tensors(GgufForm form = GgufForm::same) {
  return {{"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm", form},
          {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm", form}};
}
inline std::vector<GgufTensorName> gguf_embedding_tensors(const char* last_norm = "model.norm") {
  return {{"token_embd", "model.embed_tokens"}, {"output", "lm_head"}, {"output_norm", last_norm}};
}
inline std::vector<GgufTensorName> gguf_pre_norm_tensors() {
  return {{"blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
          {"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"}};
}

// Each table's tensors of a decoder named as Llama's.
inline std::vector<GgufTensorName> gguf_llama_tensors() {
  return joined<GgufTensorName>(
      {gguf_embedding_tensors(), gguf_pre_norm_tensors(), gguf_attention_tensors(), gguf_gated_tensors()});
}

// True if the first layer has this tensor.
inline bool first_layer_has(const GgufKeys& keys, const char* rest) {
  return keys.has_tensor(fmt::format("blk.0.{}", rest));
}

}  // namespace qkv
