// Gemma 4, its language model: Hugging Face's Gemma4ForCausalLM.

#include <algorithm>

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {
namespace {

// The rotation of one type of layers, in rope_parameters. proportional: only the first pairs of a head turn.
RotarySpec read_rotation(const JsonField& c, const char* type, int64_t width, int64_t context) {
  const bool full = type == std::string(kFull);
  RotarySpec r{.width = width, .base = full ? 1e6 : 1e4};
  const auto parameters = c.find("rope_parameters");
  check(!parameters || parameters->find(type),
        "{}: rope_parameters: expected an object for each type of layers, '{}' is missing", c.place(), type);
  const auto its = parameters ? parameters->find(type) : std::nullopt;
  if (its && its->string_or("rope_type", "default") != "proportional") {
    read_rotary_scaling(c, context, r, type);
    return r;
  }
  if (!its && !full) return r;
  const auto number = [&](const char* key, double otherwise) {
    return its && its->find(key) ? (*its)[key].number() : otherwise;
  };
  const double part = number("partial_rotary_factor", its ? 1 : 0.25);
  const auto pairs = static_cast<int64_t>(part * static_cast<double>(width) / 2);
  check(pairs > 0 && 2 * pairs <= width, "{}: rope_parameters: {}: partial_rotary_factor: {} turns no pair",
        c.place(), type, part);
  if (2 * pairs < width) r.turned = 2 * pairs;
  r.base = number("rope_theta", 1e6);
  r.factor = number("factor", 1);
  if (r.factor != 1) r.scaling = RotaryScaling::linear;
  return r;
}

OrderedJson rotation_json(const RotarySpec& r) {
  if (r.turned == 0) return rotary_parameters(r);
  OrderedJson parameters = {
      {"rope_type", "proportional"},
      {"rope_theta", r.base},
      {"partial_rotary_factor", static_cast<double>(r.turned) / static_cast<double>(r.width)}};
  if (r.scaling == RotaryScaling::linear) parameters["factor"] = r.factor;
  return parameters;
}

// The name of a kind of layers.
std::string kind_name(bool windowed, bool reused) {
  if (!windowed) return reused ? "reused" : kDefaultKind;
  return reused ? "local_reused" : "local";
}

// The kinds of layers: with a window or without, and with keys of their own or those of an earlier layer.
void read_gemma4_layers(const JsonField& c, ModelSpec& s) {
  std::vector<bool> windowed = read_windowed(c, s.layers, [](int64_t l) { return (l + 1) % 6 != 0; });
  if (!windowed.empty()) windowed.back() = false;  // whatever the file says
  const int64_t sharing = c.integer_or("num_kv_shared_layers", 0, 0, kMost);
  check(sharing < std::max<int64_t>(s.layers, 1),
        "{}: num_kv_shared_layers: {} of {} layers, the first has keys of its own", c.place(), sharing,
        s.layers);
  AttentionSpec& a = s.attention;
  BlockSpec local = s;
  a.d_qk = a.d_vo = c.integer_or("global_head_dim", 512, 1, kMost);
  a.rotary = read_rotation(c, kFull, a.d_qk, s.context);
  if (c.boolean_or("attention_k_eq_v", false)) {
    a.values_of_keys = true;
    a.kv_heads = c.integer_or("num_global_key_value_heads", a.kv_heads, 1, kMost);
  }
  local.attention.rotary = read_rotation(c, kWindowed, local.attention.d_qk, s.context);
  local.attention.patterns = {{.window = c.integer_or("sliding_window", 512, 1, kMost)}};
  const int64_t wide = c.boolean_or("use_double_wide_mlp", false) ? 2 : 1;
  for (const bool window : {false, true})
    for (const bool reused : {false, true}) {
      BlockSpec block = window ? local : s;
      block.attention.reused_keys = reused;
      if (reused) block.hidden *= wide;
      if (window || reused) s.kinds.push_back({kind_name(window, reused), block});
    }
  for (size_t l = 0; l < windowed.size(); ++l)
    s.layer_kinds.push_back(
        kind_name(windowed[l], std::ssize(windowed) - static_cast<int64_t>(l) <= sharing));
  std::erase_if(s.kinds, [&](const BlockKind& k) {
    return std::ranges::find(s.layer_kinds, k.name) == s.layer_kinds.end();
  });
  std::ranges::sort(s.kinds, {}, &BlockKind::name);
  if (s.kinds.empty()) s.layer_kinds.clear();
  s.layer_kinds = shortest_run(std::move(s.layer_kinds));
}

ModelSpec read(const JsonField& c) {
  ModelSpec s = gemma_family().read_config(c);
  for (const char* key : {"enable_moe_block", "per_layer_config"})
    check(!c.find(key) || c[key].json() == false, "{}: {}: is not supported", c.place(), key);
  check(c.string_or("use_bidirectional_attention", "vision") == "vision",
        "{}: use_bidirectional_attention: 'all' is not supported", c.place());
  AttentionSpec& a = s.attention;
  a.kv_heads = read_kv_heads(c, a.heads, 4);
  read_head_width(c, 256, s);
  s.context = c.integer_or("max_position_embeddings", 131072, 1, kMost);
  s.normalization = Normalization::rms;
  s.norm_placement = NormPlacement::sandwich;
  a.query_key_norm = QueryKeyNorm::heads;
  a.value_norm = true;
  a.scaled = false;
  s.block_scaled = true;
  s.logit_cap = c.number_or("final_logit_softcapping", 0);
  s.layer_input_width = c.integer_or("hidden_size_per_layer_input", 256, 0, kMost);
  if (s.layer_input_width > 0) {
    const auto rows = c.integer_or("vocab_size_per_layer_input", 262144, 1, kMost);
    check(rows == s.vocab_size, "{}: vocab_size_per_layer_input: expected vocab_size {}, got {}", c.place(),
          s.vocab_size, rows);
  }
  read_gemma4_layers(c, s);
  return s;
}

OrderedJson write(const ModelSpec& s) {
  const auto reuses = [&](int64_t l) { return s.block(l).attention.reused_keys; };
  const BlockSpec *local = nullptr, *full = nullptr;
  int64_t sharing = 0;
  bool wide = false;
  for (int64_t l = 0; l < s.layers; ++l) {
    (window_of(s, l) > 0 ? local : full) = &s.block(l);
    sharing += reuses(l);
    wide |= reuses(l) && s.block(l).hidden != s.hidden;
  }
  if (full == nullptr) full = &s;
  if (local == nullptr) local = full;
  OrderedJson c = gemma_family().write_config(s);
  for (const char* key : {"rope_theta", "rope_scaling", "hidden_act"}) c.erase(key);
  c["model_type"] = "gemma4_text";
  c["architectures"] = {"Gemma4ForCausalLM"};
  c["final_logit_softcapping"] = number_or_null(s.logit_cap);
  c["num_key_value_heads"] = local->attention.kv_heads;
  c["head_dim"] = local->attention.d_qk;
  c["global_head_dim"] = full->attention.d_qk;
  c["attention_k_eq_v"] = full->attention.values_of_keys;
  if (full->attention.values_of_keys) c["num_global_key_value_heads"] = full->attention.kv_heads;
  if (const int64_t w = first_window(s); w > 0) c["sliding_window"] = w;
  c["layer_types"] = layer_types(s);
  c["num_kv_shared_layers"] = sharing;
  c["use_double_wide_mlp"] = wide;
  c["hidden_size_per_layer_input"] = s.layer_input_width;
  c["vocab_size_per_layer_input"] = s.vocab_size;
  c["rope_parameters"] = {{kFull, rotation_json(full->attention.rotary)},
                          {kWindowed, rotation_json(local->attention.rotary)}};
  return c;
}

std::vector<WeightName> gemma4_text_weights(const ModelSpec& s) {
  WeightNames n{gemma2_family().weights(s), false};
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string e = fmt::format("decoder.block.{}.", l), f = fmt::format("model.layers.{}.", l);
    n.tensor(e + "scale", f + "layer_scalar");
    if (s.layer_input_width == 0) continue;
    n.linear(e + "layer_input.gate", f + "per_layer_input_gate");
    n.linear(e + "layer_input.out", f + "per_layer_projection");
    n.tensor(e + "layer_input.branch_norm.gamma", f + "post_per_layer_input_norm.weight");
  }
  if (s.layer_input_width == 0) return n.all;
  n.tensor("embedding.layers", "model.embed_tokens_per_layer.weight");
  n.linear("embedding.layers_projection", "model.per_layer_model_projection");
  n.tensor("embedding.layers_norm.gamma", "model.per_layer_projection_norm.weight");
  return n.all;
}

// Files may have keys and values of layers that reuse others'.
bool is_extra_of_gemma4(const ModelSpec& s, const std::string& name) {
  for (int64_t l = 0; l < s.layers; ++l)
    if (const std::string self = fmt::format("model.layers.{}.self_attn.", l);
        s.block(l).attention.reused_keys && name.starts_with(self))
      for (const char* of : {"k_proj.", "v_proj.", "k_norm.", "v_norm."})
        if (name.compare(self.size(), std::string_view(of).size(), of) == 0) return true;
  return is_extra_in_llama(s, name);
}

}  // namespace

const Family& gemma4_text_family() {
  static const Family family = [] {
    Family f = llama_like("gemma4_text", {"Gemma4ForCausalLM", ""}, read, write, gemma4_text_weights);
    f.ignores = is_extra_of_gemma4;
    f.rotates_by_type = true;
    return f;
  }();
  return family;
}

}  // namespace qkv
