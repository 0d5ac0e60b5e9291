// Phi-1 to Phi-4.

#include "qkv/base/json_value.h"
#include "qkv/io/gguf/architectures_parts.h"

namespace qkv {
namespace {

GgufArchitecture phi2() {
  return {.name = "phi2",
          .types = {"phi"},
          .fields = gguf_decoder_fields(kGgufLayerEpsilon, "layer_norm_eps"),
          .tensors = {{"token_embd", "model.embed_tokens"},
                      {"output", "lm_head"},
                      {"output_norm", "model.final_layernorm"},
                      {"blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
                      {"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"},
                      {"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"},
                      {"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"},
                      {"blk.{}.attn_qkv",
                       "model.layers.{}.self_attn.q_proj|model.layers.{}.self_attn.k_proj|"
                       "model.layers.{}.self_attn.v_proj",
                       GgufForm::queries_keys_values, true},
                      {"blk.{}.attn_output", "model.layers.{}.self_attn.dense"},
                      {"blk.{}.ffn_up", "model.layers.{}.mlp.fc1"},
                      {"blk.{}.ffn_down", "model.layers.{}.mlp.fc2"}},
          .rotary = {.base = "rope_theta", .part = "partial_rotary_factor"},
          .read = [](const GgufKeys&, Json& c) { c["model_type"] = "phi"; }};
}

GgufArchitecture phi3() {
  return {.name = "phi3",
          .types = {"phi3"},
          .fields = joined<GgufField>(
              {gguf_decoder_fields(kGgufRmsEpsilon, "rms_norm_eps"),
               {{.key = "attention.sliding_window", .field = "sliding_window", .required = false}}}),
          .tensors = joined<GgufTensorName>({gguf_embedding_tensors(),
                                             gguf_pre_norm_tensors(),
                                             {{"blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj"},
                                              {"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
                                              {"blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj"},
                                              {"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"}}}),
          .rotary = {.base = "rope_theta", .part = "partial_rotary_factor"},
          .read =
              [](const GgufKeys&, Json& c) {
                c["model_type"] = "phi3";
                if (c.value("sliding_window", 0) == 0) c["sliding_window"] = nullptr;  // 0 means none
              },
          .write =
              [](const Json& c, GgufKeyWriter& keys) {
                if (c.at("sliding_window").is_null()) keys.integer("attention.sliding_window", 0);
              }};
}

}  // namespace

const std::vector<GgufArchitecture>& gguf_architectures_phi() {
  static const std::vector<GgufArchitecture> all = {phi2(), phi3()};
  return all;
}

}  // namespace qkv
