// Gemma 1 to 3. Their norms multiply by 1 + weight, and the files have the sum.

#include "qkv/base/json_value.h"
#include "qkv/io/gguf/architectures_parts.h"

namespace qkv {
namespace {

// Layers of the models whose queries are scaled by the model's width, not that of a head.
constexpr int64_t kLayersOfGemma2At27B = 46, kLayersOfGemma3At27B = 62;

// llama.cpp has no key for the scale of queries: it follows from the number of layers.
void add_query_scale(Json& c, int64_t layers_at_27b) {
  const int64_t heads = c.at("num_attention_heads").get<int64_t>(),
                width = c.at("hidden_size").get<int64_t>();
  const bool of_width = c.at("num_hidden_layers") == layers_at_27b;
  c["query_pre_attn_scalar"] = of_width ? width / heads : c.at("head_dim").get<int64_t>();
}

std::vector<GgufField> fields() {
  return joined<GgufField>({gguf_decoder_fields(kGgufRmsEpsilon, "rms_norm_eps"), gguf_head_fields()});
}

// The unembedding is the embedding.
std::vector<GgufTensorName> tensors() {
  return joined<GgufTensorName>(
      {{{"token_embd", "model.embed_tokens"},
        {"output_norm", "model.norm", GgufForm::plus_one},
        {"blk.{}.attn_norm", "model.layers.{}.input_layernorm", GgufForm::plus_one}},
       gguf_attention_tensors(),
       gguf_gated_tensors()});
}

std::vector<GgufTensorName> sandwich_tensors() {
  return joined<GgufTensorName>(
      {tensors(),
       {{"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm", GgufForm::plus_one},
        {"blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm", GgufForm::plus_one},
        {"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm", GgufForm::plus_one}}});
}

GgufArchitecture gemma() {
  return {
      .name = "gemma",
      .types = {"gemma"},
      .fields = fields(),
      .tensors = joined<GgufTensorName>(
          {tensors(), {{"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm", GgufForm::plus_one}}}),
      .rotary = {.base = "rope_theta"},
      .read = [](const GgufKeys&, Json& c) { c["model_type"] = "gemma"; }};
}

GgufArchitecture gemma2() {
  return {.name = "gemma2",
          .types = {"gemma2"},
          .fields = joined<GgufField>(
              {fields(),
               {{.key = "attention.sliding_window", .field = "sliding_window", .required = false},
                {"attn_logit_softcapping", "attn_logit_softcapping", GgufFieldKind::number, false},
                {"final_logit_softcapping", "final_logit_softcapping", GgufFieldKind::number, false}}}),
          .tensors = sandwich_tensors(),
          .rotary = {.base = "rope_theta"},
          .windows = {.period = 2},
          .read = [](const GgufKeys&, Json& c) {
            c["model_type"] = "gemma2";
            add_query_scale(c, kLayersOfGemma2At27B);
          }};
}

GgufArchitecture gemma3() {
  return {.name = "gemma3",
          .types = {"gemma3_text"},
          .fields = joined<GgufField>(
              {fields(),
               {{.key = "attention.sliding_window", .field = "sliding_window", .required = false},
                {"final_logit_softcapping", "final_logit_softcapping", GgufFieldKind::number, false},
                {"rope.freq_base_swa", "rope_local_base_freq", GgufFieldKind::number, false}}}),
          .tensors = joined<GgufTensorName>(
              {sandwich_tensors(), {{"output", "lm_head"}}, gguf_head_norm_tensors(GgufForm::plus_one)}),
          .rotary = {.base = "rope_theta"},
          .windows = {.period = 6},
          .read = [](const GgufKeys&, Json& c) {
            c["model_type"] = "gemma3_text";
            if (!c.contains("rope_local_base_freq")) c["rope_local_base_freq"] = 10000.0;
            if (!c.contains("sliding_window"))
              for (Json& type : c["layer_types"]) type = "full_attention";

            add_query_scale(c, kLayersOfGemma3At27B);
          }};
}

}  // namespace

const std::vector<GgufArchitecture>& gguf_architectures_gemma() {
  static const std::vector<GgufArchitecture> all = {gemma(), gemma2(), gemma3()};
  return all;
}

}  // namespace qkv
