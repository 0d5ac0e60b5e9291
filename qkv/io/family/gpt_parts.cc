#include "qkv/io/family/gpt_parts.h"

#include "qkv/base/json_value.h"

namespace qkv {

ModelSpec read_gpt_like(const JsonField& c, const SizeKeys& keys) {
  ModelSpec s;
  s.vocab_size = c["vocab_size"].integer(0, kMost);
  s.width = c[keys.width].integer(0, kMost);
  s.layers = c[keys.layers].integer(0, kMost);
  AttentionSpec& a = s.attention;
  a.heads = a.kv_heads = c[keys.heads].integer(1, kMost);
  check(s.width % a.heads == 0, "{}: {} {} is not divisible by {} heads", c.place(), keys.width, s.width,
        a.heads);
  a.d_qk = a.d_vo = s.width / a.heads;
  s.hidden = 4 * s.width;
  s.init_std = c.number_or("initializer_range", 0.02F);
  s.tied = c.boolean_or("tie_word_embeddings", true);
  return s;
}

OrderedJson write_gpt_like(const ModelSpec& s, const char* type, const char* architecture,
                           const SizeKeys& keys) {
  return {{"model_type", type},
          {"architectures", {architecture}},
          {"vocab_size", s.vocab_size},
          {keys.width, s.width},
          {keys.layers, s.layers},
          {keys.heads, s.attention.heads},
          {"initializer_range", decimal(s.init_std)},
          {"tie_word_embeddings", s.tied},
          {"torch_dtype", "float32"},
          {"use_cache", true}};
}

void read_dropouts(const JsonField& c, const DropoutKeys& keys, float otherwise, ModelSpec& s) {
  if (keys.attention != nullptr) s.attention.dropout = c.number_or(keys.attention, otherwise);
  if (keys.embedding != nullptr) s.embedding_dropout = c.number_or(keys.embedding, otherwise);
  if (keys.residual != nullptr) s.residual_dropout = c.number_or(keys.residual, otherwise);
}

void write_dropouts(const ModelSpec& s, const DropoutKeys& keys, OrderedJson& c) {
  if (keys.attention != nullptr) c[keys.attention] = decimal(s.attention.dropout);
  if (keys.embedding != nullptr) c[keys.embedding] = decimal(s.embedding_dropout);
  if (keys.residual != nullptr) c[keys.residual] = decimal(s.residual_dropout);
}

GptBlockNames megatron_block(const std::string& attention) {
  return {"input_layernorm",    "post_attention_layernorm", {attention + ".query_key_value"},
          attention + ".dense", "mlp.dense_h_to_4h",        "mlp.dense_4h_to_h"};
}

GptBlockNames fairseq_block() {
  return {"self_attn_layer_norm",
          "final_layer_norm",
          {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
          "self_attn.out_proj",
          "fc1",
          "fc2"};
}

namespace {

// The file's row for each row of the engine, for a projection in groups.
std::vector<int64_t> grouped_rows(const AttentionSpec& a) {
  const int64_t share = a.heads / a.kv_heads, d = a.d_qk, group = (share + 2) * d;
  std::vector<int64_t> rows;
  const auto add = [&](int64_t g, int64_t head) {
    for (int64_t i = 0; i < d; ++i) rows.push_back(g * group + head * d + i);
  };
  for (int64_t h = 0; h < a.heads; ++h) add(h / share, h % share);
  for (const int64_t part : {share, share + 1})
    for (int64_t g = 0; g < a.kv_heads; ++g) add(g, part);
  return rows;
}

bool is_decoder(const ModelSpec& s) {
  return s.architecture == Architecture::decoder && has_decoder_head(s) &&
         s.attention.d_qk == s.attention.d_vo && s.attention.heads * s.attention.d_qk == s.width;
}

}  // namespace

void add_gpt_norm(WeightNames& n, const ModelSpec& s, const std::string& engine, const std::string& file) {
  if (s.normalization == Normalization::layer_plain) return;
  n.bias = s.normalization == Normalization::layer;
  n.norm(engine, file);
}

void add_gpt_blocks(WeightNames& n, const ModelSpec& s, const std::string& layers,
                    const GptBlockNames& block) {
  const AttentionSpec& a = s.attention;
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string e = fmt::format("decoder.block.{}.", l), f = fmt::format("{}{}.", layers, l);
    add_gpt_norm(n, s, e + "attention.norm", f + block.norm);
    if (!block.second_norm.empty()) add_gpt_norm(n, s, e + "feed_forward.norm", f + block.second_norm);
    n.bias = a.bias;
    if (block.qkv.size() == 1) {
      const size_t first = n.all.size();
      n.linear(e + "attention.qkv", f + block.qkv[0]);
      for (size_t i = first; block.grouped && i < n.all.size(); ++i) n.all[i].row_order = grouped_rows(a);
    } else {
      n.parts(e + "attention.qkv", {f + block.qkv[0], f + block.qkv[1], f + block.qkv[2]},
              {a.heads * a.d_qk, a.kv_heads * a.d_qk, a.kv_heads * a.d_vo});
    }
    n.bias = a.out_bias;
    n.linear(e + "attention.out", f + block.out);
    n.bias = s.feed_forward_bias;
    n.linear(e + "feed_forward.up", f + block.up);
    n.linear(e + "feed_forward.down", f + block.down);
  }
}

WeightNames weights_named_as_gpt(const ModelSpec& s, const GptNames& names) {
  WeightNames n;
  n.tensor("embedding.token", names.embedding);
  add_gpt_blocks(n, s, names.layers, names.block);
  add_gpt_norm(n, s, "decoder.norm", names.last_norm);
  n.untied(s, names.unembedding);
  return n;
}

bool is_extra_in_gpt(const ModelSpec& s, const std::string& name) {
  for (const char* extra : {".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias",
                            ".rotary_emb.inv_freq"})
    if (name.ends_with(extra)) return true;
  return s.tied && (name == "lm_head.weight" || name == "embed_out.weight");
}

Family gpt_like(const char* type, const char* language_model, ModelSpec (*read)(const JsonField&),
                OrderedJson (*write)(const ModelSpec&), std::vector<WeightName> (*weights)(const ModelSpec&),
                const char* prefix, const char* classifier) {
  return {type,           read,      write, is_decoder, weights, prefix, is_extra_in_gpt, Activation::tanh,
          language_model, classifier};
}

}  // namespace qkv
