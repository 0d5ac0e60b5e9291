// Llama 4, its language model: Hugging Face's Llama4ForCausalLM.

#include <algorithm>
#include <vector>

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {
namespace {

// true, or in published files a number other than 0.
bool tunes_temperature(const JsonField& c) {
  const auto field = c.find("attn_temperature_tuning");
  return field && field->json().is_number() ? field->number() != 0
                                            : c.boolean_or("attn_temperature_tuning", true);
}

// moe_layers lists the layers with experts; without it every interleave_moe_layer_step-th layer has them.
void read_layers_with_experts(const JsonField& c, int64_t layers, ExpertsSpec& x) {
  const auto step = c.integer_or("interleave_moe_layer_step", 1, 1, kMost);
  x.every = std::min<int64_t>(step, 4096);
  x.first = step - 1;
  const auto listed = c.find("moe_layers");
  if (!listed) {
    if (x.first >= layers) x = {};
    return;
  }
  const std::vector<int64_t> which = listed->integers(0, kMost);
  if (which.empty()) {
    x = {};
    return;
  }
  x.first = which[0];
  x.every = which.size() > 1 ? which[1] - which[0] : std::clamp<int64_t>(layers - x.first, 1, 4096);
  check(x.every >= 1 && x.every <= 4096 &&
            std::ssize(which) == (std::max<int64_t>(0, layers - 1 - x.first)) / x.every + 1,
        "{}: only every N-th layer up to the last is supported", listed->place());
  for (size_t i = 0; i < which.size(); ++i)
    check(which[i] == x.first + static_cast<int64_t>(i) * x.every,
          "{}: only every N-th layer up to the last is supported", listed->place());
}

void read_experts(const JsonField& c, ModelSpec& s) {
  ExpertsSpec& x = s.experts;
  x.count = c.integer_or("num_local_experts", 16, 1, kMost);
  x.chosen = c.integer_or("num_experts_per_tok", 1, 1, kMost);
  x.hidden = x.shared_hidden = s.hidden;
  x.score = RouterScore::sigmoid;
  x.renormalized = false;
  x.input_weighted = true;
  x.balance = 0;
  read_layers_with_experts(c, s.layers, x);
  s.hidden = c.integer_or("intermediate_size_mlp", 16384, 1, kMost);
}

}  // namespace

const Family& llama4_text_family() {
  static const Family family = llama_like(
      "llama4_text", {"Llama4ForCausalLM", ""},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        AttentionSpec& a = s.attention;
        a.kv_heads = read_kv_heads(c, a.heads, 8);
        read_head_width(c, 128, s);
        s.context = c.integer_or("max_position_embeddings", 4096 * 32, 1, kMost);
        s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
        default_rotary_base(c, 500000, a.rotary);
        a.rotary.layout = RotaryLayout::interleaved;
        read_experts(c, s);
        BlockSpec global = without_positions(s);
        a.bias = a.out_bias = false;
        if (tunes_temperature(c)) {
          global.attention.query_growth = c.number_or("attn_scale", 0.1F);
          global.attention.query_growth_every = c.integer_or("floor_scale", 8192, 1, kMost);
          global.attention.query_growth_from = 1;
        }
        if (c.boolean_or("use_qk_norm", true)) a.query_key_norm = QueryKeyNorm::unit_rotated;
        if (const auto chunk = c.integer_or("attention_chunk_size", 8192, 1, kMost); chunk > 0)
          a.patterns = {{.block = chunk}};
        give_block(s, read_unrotated(c, s.layers), "global", global);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "llama4_text", "Llama4ForCausalLM");
        const ExpertsSpec& x = s.experts;
        c["head_dim"] = s.attention.d_qk;
        c["intermediate_size"] = x.count > 0 ? x.hidden : s.hidden;
        c["intermediate_size_mlp"] = s.hidden;
        if (x.count > 0) c["num_local_experts"] = x.count;
        c["num_experts_per_tok"] = x.chosen;
        c["moe_layers"] = OrderedJson::array();
        for (int64_t l = 0; l < s.layers; ++l)
          if (x.in_layer(l)) c["moe_layers"].push_back(l);
        c["attn_temperature_tuning"] = false;
        c["no_rope_layers"] = OrderedJson::array();
        for (int64_t l = 0; l < s.layers; ++l) {
          const AttentionSpec& a = s.block(l).attention;
          c["no_rope_layers"].push_back(a.rotary.width > 0 ? 1 : 0);
          if (a.rotary.width > 0) {
            c["use_qk_norm"] = a.query_key_norm != QueryKeyNorm::none;
            c["attention_chunk_size"] = number_or_null(a.patterns.empty() ? int64_t{0} : a.patterns[0].block);
          } else if (a.query_growth != 0) {
            c["attn_temperature_tuning"] = true;
            c["attn_scale"] = decimal(a.query_growth);
            c["floor_scale"] = a.query_growth_every;
          }
        }
        return c;
      },
      [](const ModelSpec& s) {
        return weights_named_as_llama(s, {.network = "feed_forward",
                                          .mixture = "feed_forward",
                                          .router = "router",
                                          .expert = {"experts.gate_up_proj", "experts.down_proj"},
                                          .stacked_experts = true,
                                          .transposed_experts = true});
      });
  return family;
}

}  // namespace qkv
