// GPT-2 and decoders with a fused projection like it.

#include "qkv/base/json_value.h"
#include "qkv/io/gguf/architectures_parts.h"

namespace qkv {
namespace {

constexpr double kMptSlopes = 8;  // that of all its models

// Sizes in GPT-2's words.
std::vector<GgufField> gpt2_fields() {
  return {
      {"context_length", "n_positions"},  {"embedding_length", "n_embd"},
      {"block_count", "n_layer"},         {"attention.head_count", "n_head"},
      {"feed_forward_length", "n_inner"}, {kGgufLayerEpsilon, "layer_norm_epsilon", GgufFieldKind::number}};
}

std::vector<GgufTensorName> gpt2_tensors(GgufForm matrices) {
  return {{"token_embd", "transformer.wte"},
          {.gguf = "position_embd", .file = "transformer.wpe", .wide = true},
          {"output", "lm_head"},
          {"output_norm", "transformer.ln_f"},
          {"blk.{}.attn_norm", "transformer.h.{}.ln_1"},
          {"blk.{}.attn_qkv", "transformer.h.{}.attn.c_attn", matrices},
          {"blk.{}.attn_output", "transformer.h.{}.attn.c_proj", matrices},
          {"blk.{}.ffn_norm", "transformer.h.{}.ln_2"},
          {"blk.{}.ffn_up", "transformer.h.{}.mlp.c_fc", matrices},
          {"blk.{}.ffn_down", "transformer.h.{}.mlp.c_proj", matrices}};
}

GgufArchitecture gpt2() {
  return {.name = "gpt2",
          .types = {"gpt2"},
          .fields = gpt2_fields(),
          .tensors = gpt2_tensors(GgufForm::transposed),
          .read =
              [](const GgufKeys& keys, Json& c) {
                c["model_type"] = "gpt2";
                const int64_t heads = c.at("n_head").get<int64_t>();
                check(keys.integer_or("attention.head_count_kv", heads) == heads,
                      "{}: key '{}': expected as many as of queries", keys.file().path,
                      keys.full("attention.head_count_kv"));
              },
          .write =
              [](const Json& c, GgufKeyWriter& keys) {
                if (c.at("n_inner").is_null())
                  keys.integer("feed_forward_length", 4 * c.at("n_embd").get<int64_t>());
              }};
}

// Only with one head of keys and values.
GgufArchitecture starcoder() {
  return {.name = "starcoder",
          .types = {"gpt_bigcode"},
          .fields = gpt2_fields(),
          .tensors = gpt2_tensors(GgufForm::same),
          .read =
              [](const GgufKeys& keys, Json& c) {
                c["model_type"] = "gpt_bigcode";
                check(keys.integer("attention.head_count_kv") == 1, "{}: key '{}': only 1 is supported",
                      keys.file().path, keys.full("attention.head_count_kv"));
                c["multi_query"] = true;
              },
          .write = [](const Json&, GgufKeyWriter& keys) { keys.integer("attention.head_count_kv", 1); }};
}

// The names of Megatron-LM's models.
std::vector<GgufTensorName> megatron_tensors() {
  return {{"token_embd", "transformer.word_embeddings"},
          {"output", "lm_head"},
          {"output_norm", "transformer.ln_f"},
          {"blk.{}.attn_norm", "transformer.h.{}.input_layernorm"},
          {"blk.{}.attn_qkv", "transformer.h.{}.self_attention.query_key_value", GgufForm::groups},
          {"blk.{}.attn_output", "transformer.h.{}.self_attention.dense"},
          {"blk.{}.ffn_up", "transformer.h.{}.mlp.dense_h_to_4h"},
          {"blk.{}.ffn_down", "transformer.h.{}.mlp.dense_4h_to_h"}};
}

// Throws Error unless feed-forward networks are four times as wide as the model, which files of some
// architectures cannot say otherwise.
void expect_four_times(const GgufKeys& keys, int64_t width) {
  check(keys.integer("feed_forward_length") == 4 * width, "{}: key '{}': expected four times {}",
        keys.file().path, keys.full("feed_forward_length"), width);
}

GgufArchitecture bloom() {
  return {
      .name = "bloom",
      .types = {"bloom"},
      .fields = {{"context_length", "seq_length"},
                 {"embedding_length", "hidden_size"},
                 {"block_count", "n_layer"},
                 {"attention.head_count", "n_head"},
                 {.key = "attention.head_count_kv", .field = "n_head", .required = false},
                 {kGgufLayerEpsilon, "layer_norm_epsilon", GgufFieldKind::number}},
      .tensors = joined<GgufTensorName>({megatron_tensors(),
                                         {{"token_embd_norm", "transformer.word_embeddings_layernorm"},
                                          {"blk.{}.ffn_norm", "transformer.h.{}.post_attention_layernorm"}}}),
      .read =
          [](const GgufKeys& keys, Json& c) {
            c["model_type"] = "bloom";
            expect_four_times(keys, c.at("hidden_size").get<int64_t>());
          },
      .write =
          [](const Json& c, GgufKeyWriter& keys) {
            keys.integer("feed_forward_length", 4 * c.at("hidden_size").get<int64_t>());
          }};
}

GgufArchitecture falcon() {
  return {.name = "falcon",
          .types = {"falcon"},
          .fields = {{"context_length", "max_position_embeddings"},
                     {"embedding_length", "hidden_size"},
                     {"block_count", "num_hidden_layers"},
                     {"feed_forward_length", "ffn_hidden_size"},
                     {"attention.head_count", "num_attention_heads"},
                     {.key = "attention.head_count_kv",
                      .field = "num_kv_heads",
                      .otherwise = "attention.head_count"},
                     {kGgufLayerEpsilon, "layer_norm_epsilon", GgufFieldKind::number}},
          .tensors = joined<GgufTensorName>({megatron_tensors(),
                                             {{"blk.{}.attn_norm", "transformer.h.{}.ln_mlp"},
                                              {"blk.{}.attn_norm_2", "transformer.h.{}.ln_attn"}}}),
          .rotary = {.base = "rope_theta"},
          .read =
              [](const GgufKeys& keys, Json& c) {
                c["model_type"] = "falcon";
                const bool two_norms = first_layer_has(keys, "attn_norm_2.weight"),
                           groups = two_norms || c.at("num_kv_heads") != 1;
                c["new_decoder_architecture"] = groups;
                c["multi_query"] = !groups;
                c["num_ln_in_parallel_attn"] = two_norms ? 2 : 1;
                c["parallel_attn"] = true;
                c["alibi"] = c["bias"] = false;
              },
          .write = [](const Json&, GgufKeyWriter& keys) { keys.text("tensor_data_layout", "jploski"); }};
}

GgufArchitecture gptneox() {
  return {.name = "gptneox",
          .types = {"gpt_neox"},
          .fields = {{"context_length", "max_position_embeddings"},
                     {"embedding_length", "hidden_size"},
                     {"block_count", "num_hidden_layers"},
                     {"feed_forward_length", "intermediate_size"},
                     {"attention.head_count", "num_attention_heads"},
                     {.key = "attention.head_count_kv", .field = "num_attention_heads", .required = false},
                     {"use_parallel_residual", "use_parallel_residual", GgufFieldKind::flag},
                     {kGgufLayerEpsilon, "layer_norm_eps", GgufFieldKind::number}},
          .tensors = {{"token_embd", "gpt_neox.embed_in"},
                      {"output", "embed_out"},
                      {"output_norm", "gpt_neox.final_layer_norm"},
                      {"blk.{}.attn_norm", "gpt_neox.layers.{}.input_layernorm"},
                      {"blk.{}.attn_qkv", "gpt_neox.layers.{}.attention.query_key_value", GgufForm::groups},
                      {"blk.{}.attn_output", "gpt_neox.layers.{}.attention.dense"},
                      {"blk.{}.ffn_norm", "gpt_neox.layers.{}.post_attention_layernorm"},
                      {"blk.{}.ffn_up", "gpt_neox.layers.{}.mlp.dense_h_to_4h"},
                      {"blk.{}.ffn_down", "gpt_neox.layers.{}.mlp.dense_4h_to_h"}},
          .rotary = {.base = "rotary_emb_base", .part = "rotary_pct"},
          .read = [](const GgufKeys&, Json& c) { c["model_type"] = "gpt_neox"; }};
}

GgufArchitecture mpt() {
  return {.name = "mpt",
          .types = {"mpt"},
          .fields = {{"context_length", "max_seq_len"},
                     {"embedding_length", "d_model"},
                     {"block_count", "n_layers"},
                     {"attention.head_count", "n_heads"},
                     {.key = "attention.head_count_kv", .field = "n_heads", .required = false},
                     {kGgufLayerEpsilon, "layer_norm_epsilon", GgufFieldKind::number}},
          .tensors = {{"token_embd", "transformer.wte"},
                      {"output", "lm_head"},
                      {"output_norm", "transformer.norm_f"},
                      {"blk.{}.attn_norm", "transformer.blocks.{}.norm_1"},
                      {"blk.{}.attn_qkv", "transformer.blocks.{}.attn.Wqkv"},
                      {"blk.{}.attn_output", "transformer.blocks.{}.attn.out_proj"},
                      {"blk.{}.ffn_norm", "transformer.blocks.{}.norm_2"},
                      {"blk.{}.ffn_up", "transformer.blocks.{}.ffn.up_proj"},
                      {"blk.{}.ffn_down", "transformer.blocks.{}.ffn.down_proj"}},
          .read =
              [](const GgufKeys& keys, Json& c) {
                c["model_type"] = "mpt";
                expect_four_times(keys, c.at("d_model").get<int64_t>());
                check(keys.number("attention.max_alibi_bias") == kMptSlopes,
                      "{}: key '{}': only {} is supported", keys.file().path,
                      keys.full("attention.max_alibi_bias"), kMptSlopes);
                c["attn_config"] = {{"alibi", true}};
                if (const double clip = keys.number_or("attention.clamp_kqv", 0); clip > 0)
                  c["attn_config"]["clip_qkv"] = clip;
              },
          .write =
              [](const Json& c, GgufKeyWriter& keys) {
                keys.integer("feed_forward_length", 4 * c.at("d_model").get<int64_t>());
                keys.number("attention.max_alibi_bias", kMptSlopes);
                const Json& attention = c.at("attn_config");
                if (attention.contains("clip_qkv"))
                  keys.number("attention.clamp_kqv", attention.at("clip_qkv").get<double>());
              }};
}

}  // namespace

const std::vector<GgufArchitecture>& gguf_architectures_gpt() {
  static const std::vector<GgufArchitecture> all = {gpt2(), starcoder(), bloom(), falcon(), gptneox(), mpt()};
  return all;
}

}  // namespace qkv
