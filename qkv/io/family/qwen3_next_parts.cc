#include "qkv/io/family/qwen3_next_parts.h"

#include "qkv/base/json_value.h"

namespace qkv {

ModelSpec read_qwen3_next_like(const JsonField& c, const GatedHeads& otherwise) {
  ModelSpec s = read_llama_like(c);
  AttentionSpec& a = s.attention;
  s.context = c.integer_or("max_position_embeddings", 32768, 1, kMost);
  a.kv_heads = read_kv_heads(c, a.heads, otherwise.kv_heads);
  read_head_width(c, otherwise.width, s);
  a.rotary.width = read_rotated(c, "partial_rotary_factor", 0.25, a.d_qk);
  a.query_key_norm = QueryKeyNorm::heads_plus_one;
  a.gated = true;
  s.normalization = Normalization::rms_plus_one;
  return s;
}

GatedDeltaMixer read_gated_delta(const JsonField& c, const LinearHeads& otherwise) {
  GatedDeltaMixer m;
  constexpr int64_t kWidth = 128;
  m.heads = c.integer_or("linear_num_value_heads", otherwise.values, 1, kMost);
  m.key_heads = c.integer_or("linear_num_key_heads", otherwise.keys, 1, kMost);
  m.d_k = c.integer_or("linear_key_head_dim", kWidth, 1, kMost);
  m.d_v = c.integer_or("linear_value_head_dim", kWidth, 1, kMost);
  m.kernel = c.integer_or("linear_conv_kernel_dim", 4, 2, kMost);
  check(m.heads % m.key_heads == 0, "{}: linear_num_value_heads: {} heads cannot share the keys of {}",
        c.place(), m.heads, m.key_heads);
  return m;
}

std::vector<bool> read_full_layers(const JsonField& c, int64_t layers) {
  const auto every = c.integer_or("full_attention_interval", 4, 1, kMost);
  return read_layer_types(c, layers, "full_attention", "linear_attention",
                          [&](int64_t l) { return (l + 1) % every == 0; });
}

OrderedJson write_qwen3_next_like(const ModelSpec& s, const char* type, const char* architecture) {
  const ModelSpec all = as_if_all_attend(s);
  const AttentionSpec& a = all.attention;
  OrderedJson c = write_llama_like(all, type, architecture);
  c["head_dim"] = a.d_qk;
  c["attention_bias"] = a.bias;
  if (all.mixer.attends()) c["partial_rotary_factor"] = rotated_part(a);
  c["layer_types"] = write_layer_types(s, "full_attention", "linear_attention");
  if (const GatedDeltaMixer* m = first_mixer<GatedDeltaMixer>(s)) {
    c["linear_num_value_heads"] = m->heads;
    c["linear_num_key_heads"] = m->key_heads;
    c["linear_key_head_dim"] = m->d_k;
    c["linear_value_head_dim"] = m->d_v;
    c["linear_conv_kernel_dim"] = m->kernel;
  }
  return c;
}

Family qwen3_next_like(const char* type, const char* language_model, ModelSpec (*read)(const JsonField&),
                       OrderedJson (*write)(const ModelSpec&),
                       std::vector<WeightName> (*weights)(const ModelSpec&)) {
  Family f = llama_like(type, {language_model}, read, write, weights);
  f.expresses = is_hybrid<GatedDeltaMixer>;
  // Modules that predict further tokens are no part of these classes.
  f.ignores = [](const ModelSpec& s, const std::string& name) {
    return is_extra_in_llama(s, name) || name.starts_with("mtp.");
  };
  return f;
}

}  // namespace qkv
