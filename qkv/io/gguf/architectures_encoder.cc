// BERT and T5.

#include "qkv/base/json_value.h"
#include "qkv/io/gguf/architectures_parts.h"

namespace qkv {
namespace {

constexpr int64_t kT5Distance = 128;  // that of all its models

// Files of BERT make vectors: they have neither a head nor the pooler, which vectors do not need.
GgufArchitecture bert() {
  return {.name = "bert",
          .types = {"bert"},
          .fields = {{"context_length", "max_position_embeddings"},
                     {"embedding_length", "hidden_size"},
                     {"block_count", "num_hidden_layers"},
                     {"feed_forward_length", "intermediate_size"},
                     {"attention.head_count", "num_attention_heads"},
                     {.key = "attention.head_count_kv", .field = "num_attention_heads", .required = false},
                     {kGgufLayerEpsilon, "layer_norm_eps", GgufFieldKind::number}},
          .tensors = {{"token_embd", "bert.embeddings.word_embeddings"},
                      {.gguf = "position_embd", .file = "bert.embeddings.position_embeddings", .wide = true},
                      {.gguf = "token_types", .file = "bert.embeddings.token_type_embeddings", .wide = true},
                      {"token_embd_norm", "bert.embeddings.LayerNorm"},
                      {"blk.{}.attn_q", "bert.encoder.layer.{}.attention.self.query"},
                      {"blk.{}.attn_k", "bert.encoder.layer.{}.attention.self.key"},
                      {"blk.{}.attn_v", "bert.encoder.layer.{}.attention.self.value"},
                      {"blk.{}.attn_output", "bert.encoder.layer.{}.attention.output.dense"},
                      {"blk.{}.attn_output_norm", "bert.encoder.layer.{}.attention.output.LayerNorm"},
                      {"blk.{}.ffn_up", "bert.encoder.layer.{}.intermediate.dense"},
                      {"blk.{}.ffn_down", "bert.encoder.layer.{}.output.dense"},
                      {"blk.{}.layer_output_norm", "bert.encoder.layer.{}.output.LayerNorm"}},
          .causal = false,
          .read =
              [](const GgufKeys& keys, Json& c) {
                c["model_type"] = "bert";
                c["architectures"] = {"BertModel"};
                const Weight* types = keys.file().tensor("token_types.weight");
                c["type_vocab_size"] = types == nullptr ? 0 : types->dim(0);
              },
          .without = {"bert.pooler."}};
}

// The tensors of a stack's attention and network. The decoder has cross-attention between them.
std::vector<GgufTensorName> t5_tensors() {
  return {{"token_embd", "shared"},
          {"output", "lm_head"},
          {"enc.output_norm", "encoder.final_layer_norm"},
          {"dec.output_norm", "decoder.final_layer_norm"},
          {"enc.blk.{}.attn_norm", "encoder.block.{}.layer.0.layer_norm"},
          {"enc.blk.{}.attn_q", "encoder.block.{}.layer.0.SelfAttention.q"},
          {"enc.blk.{}.attn_k", "encoder.block.{}.layer.0.SelfAttention.k"},
          {"enc.blk.{}.attn_v", "encoder.block.{}.layer.0.SelfAttention.v"},
          {"enc.blk.{}.attn_o", "encoder.block.{}.layer.0.SelfAttention.o"},
          {.gguf = "enc.blk.{}.attn_rel_b",
           .file = "encoder.block.{}.layer.0.SelfAttention.relative_attention_bias",
           .wide = true},
          {"enc.blk.{}.ffn_norm", "encoder.block.{}.layer.1.layer_norm"},
          {"enc.blk.{}.ffn_up", "encoder.block.{}.layer.1.DenseReluDense.wi"},
          {"enc.blk.{}.ffn_gate", "encoder.block.{}.layer.1.DenseReluDense.wi_0"},
          {"enc.blk.{}.ffn_up", "encoder.block.{}.layer.1.DenseReluDense.wi_1"},
          {"enc.blk.{}.ffn_down", "encoder.block.{}.layer.1.DenseReluDense.wo"},
          {"dec.blk.{}.attn_norm", "decoder.block.{}.layer.0.layer_norm"},
          {"dec.blk.{}.attn_q", "decoder.block.{}.layer.0.SelfAttention.q"},
          {"dec.blk.{}.attn_k", "decoder.block.{}.layer.0.SelfAttention.k"},
          {"dec.blk.{}.attn_v", "decoder.block.{}.layer.0.SelfAttention.v"},
          {"dec.blk.{}.attn_o", "decoder.block.{}.layer.0.SelfAttention.o"},
          {.gguf = "dec.blk.{}.attn_rel_b",
           .file = "decoder.block.{}.layer.0.SelfAttention.relative_attention_bias",
           .wide = true},
          {"dec.blk.{}.cross_attn_norm", "decoder.block.{}.layer.1.layer_norm"},
          {"dec.blk.{}.cross_attn_q", "decoder.block.{}.layer.1.EncDecAttention.q"},
          {"dec.blk.{}.cross_attn_k", "decoder.block.{}.layer.1.EncDecAttention.k"},
          {"dec.blk.{}.cross_attn_v", "decoder.block.{}.layer.1.EncDecAttention.v"},
          {"dec.blk.{}.cross_attn_o", "decoder.block.{}.layer.1.EncDecAttention.o"},
          {"dec.blk.{}.ffn_norm", "decoder.block.{}.layer.2.layer_norm"},
          {"dec.blk.{}.ffn_up", "decoder.block.{}.layer.2.DenseReluDense.wi"},
          {"dec.blk.{}.ffn_gate", "decoder.block.{}.layer.2.DenseReluDense.wi_0"},
          {"dec.blk.{}.ffn_up", "decoder.block.{}.layer.2.DenseReluDense.wi_1"},
          {"dec.blk.{}.ffn_down", "decoder.block.{}.layer.2.DenseReluDense.wo"}};
}

GgufArchitecture t5() {
  return {
      .name = "t5",
      .types = {"t5"},
      .fields = {{"context_length", "n_positions"},
                 {"embedding_length", "d_model"},
                 {"block_count", "num_layers"},
                 {.key = "decoder_block_count", .field = "num_decoder_layers", .otherwise = "block_count"},
                 {"feed_forward_length", "d_ff"},
                 {"attention.head_count", "num_heads"},
                 {.key = "attention.head_count_kv", .field = "num_heads", .required = false},
                 {"attention.key_length", "d_kv"},
                 {"attention.value_length", "d_kv"},
                 {kGgufRmsEpsilon, "layer_norm_epsilon", GgufFieldKind::number},
                 {kGgufLayerEpsilon, "layer_norm_epsilon", GgufFieldKind::number, false},
                 {"attention.relative_buckets_count", "relative_attention_num_buckets"},
                 {.key = "decoder_start_token_id", .field = "decoder_start_token_id", .required = false}},
      .tensors = t5_tensors(),
      .read = [](const GgufKeys& keys, Json& c) {
        c["model_type"] = "t5";
        c["is_encoder_decoder"] = true;
        c["relative_attention_max_distance"] = kT5Distance;
        c["feed_forward_proj"] = keys.has_tensor("enc.blk.0.ffn_gate.weight") ? "gated-gelu" : "relu";
      }};
}

}  // namespace

const std::vector<GgufArchitecture>& gguf_architectures_encoder() {
  static const std::vector<GgufArchitecture> all = {bert(), t5()};
  return all;
}

}  // namespace qkv
