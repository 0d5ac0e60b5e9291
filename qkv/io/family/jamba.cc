// Jamba: Hugging Face's JambaForCausalLM, layers of Mamba and of attention, some with experts.

#include "qkv/base/json_value.h"
#include "qkv/io/family/hybrid_parts.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {
namespace {

// Layers i with i mod period = offset.
struct Every {
  int64_t period, offset;
  bool holds(int64_t layer) const { return layer % period == offset; }
};

Every read_every(const JsonField& c, const std::string& what, int64_t period, int64_t offset) {
  Every e{c.integer_or((what + "_period").c_str(), period, 1, kMost),
          c.integer_or((what + "_offset").c_str(), offset, 0, kMost)};
  check(e.offset < e.period, "{}: {}_offset: expected less than {}_period, {}, got {}", c.place(), what, what,
        e.period, e.offset);
  return e;
}

ModelSpec read_jamba(const JsonField& c) {
  ModelSpec s = read_llama_like(c);
  s.context = c.integer_or("max_position_embeddings", 262144, 1, kMost);
  s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 8);
  s.positions = Positions::none;
  s.attention.rotary = {};
  const auto window = c.find("sliding_window");
  check(!window || window->json().is_null(), "{}: sliding_window: only null is supported", c.place());
  const Every experts = read_every(c, "expert_layer", 2, 1), attends = read_every(c, "attn_layer", 8, 4);
  ExpertsSpec& x = s.experts;
  x.count = c.integer_or("num_experts", 16, 1, kMost);
  if (x.count == 1) {
    x = {};
  } else {
    x.chosen = c.integer_or("num_experts_per_tok", 2, 1, kMost);
    x.hidden = s.hidden;
    x.renormalized = false;
    x.balance = c.number_or("router_aux_loss_coef", 0.001F);
    x.first = experts.offset;
    x.every = experts.period;
  }
  MambaMixer m;
  m.inner = c.integer_or("mamba_expand", 2, 1, kMost) * s.width;
  m.state = c.integer_or("mamba_d_state", 16, 1, kMost);
  m.rank = read_step_rank(c, "mamba_dt_rank", s.width);
  m.kernel = c.integer_or("mamba_d_conv", 4, 2, kMost);
  m.bias = c.boolean_or("mamba_proj_bias", false);
  m.convolution_bias = c.boolean_or("mamba_conv_bias", true);
  m.norms = true;
  std::vector<std::string> layers;
  for (const bool attention :
       read_layer_types(c, s.layers, "attention", "mamba", [&](int64_t l) { return attends.holds(l); }))
    layers.push_back(attention ? kDefaultKind : "mamba");
  give_blocks(s, layers, {{"mamba", with_mixer(s, m)}});
  return s;
}

OrderedJson write_jamba(const ModelSpec& s) {
  const ModelSpec all = as_if_all_attend(s);
  OrderedJson c = write_llama_like(all, "jamba", "JambaForCausalLM");
  c.erase("rope_theta");
  const ExpertsSpec& x = s.experts;
  c["num_experts"] = x.count > 0 ? x.count : 1;
  c["num_experts_per_tok"] = x.chosen;
  c["router_aux_loss_coef"] = decimal(x.balance);
  c["expert_layer_period"] = x.every;
  c["expert_layer_offset"] = x.first;
  // The period and the offset of layers that attend, where there is one for all.
  int64_t first = 0, next = 0;
  while (first < s.layers && !s.block(first).mixer.attends()) ++first;
  next = first + 1;
  while (next < s.layers && !s.block(next).mixer.attends()) ++next;
  const int64_t period = next < s.layers ? next - first : std::max(s.layers, first + 1);
  c["attn_layer_period"] = period;
  c["attn_layer_offset"] = first;
  if (const MambaMixer* m = first_mixer<MambaMixer>(s)) {
    c["mamba_expand"] = m->inner / s.width;
    c["mamba_d_state"] = m->state;
    c["mamba_dt_rank"] = m->rank;
    c["mamba_d_conv"] = m->kernel;
    c["mamba_proj_bias"] = m->bias;
    c["mamba_conv_bias"] = m->convolution_bias;
  }
  c["use_mamba_kernels"] = false;
  return c;
}

}  // namespace

const Family& jamba_family() {
  static const Family family = [] {
    Family f = llama_like("jamba", {"JambaForCausalLM"}, read_jamba, write_jamba, [](const ModelSpec& s) {
      return weights_named_as_llama(
          s, {.feed_forward_norm = "pre_ff_layernorm",
              .network = "feed_forward",
              .last_norm = "model.final_layernorm",
              .mixture = "feed_forward",
              .router = "router",
              .mixer = [](WeightNames& n, const ModelSpec& /*spec*/, const BlockSpec& b, const std::string& e,
                          const std::string& file) {
                add_mamba(n, *b.mixer.get_if<MambaMixer>(), e, file + "mamba.");
              }});
    });
    f.expresses = is_hybrid<MambaMixer>;
    return f;
  }();
  return family;
}

}  // namespace qkv
