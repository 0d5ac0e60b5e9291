// Granite 4: Hugging Face's GraniteMoeHybridForCausalLM, layers of Mamba-2 and of attention.

#include "qkv/base/json_value.h"
#include "qkv/io/family/hybrid_parts.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {
namespace {

ModelSpec read_granitemoehybrid(const JsonField& c) {
  ModelSpec s = granite_family().read_config(c);
  if (c.string_or("position_embedding_type", "") != "rope") {
    s.positions = Positions::none;
    s.attention.rotary = {};
  }
  const int64_t shared = c.integer_or("shared_intermediate_size", 1024, 1, kMost);
  ExpertsSpec& x = s.experts;
  x.count = c.integer_or("num_local_experts", 8, 0, kMost);
  if (x.count == 0) {
    s.hidden = shared;
  } else {
    x.chosen = c.integer_or("num_experts_per_tok", 2, 1, kMost);
    x.hidden = s.hidden;
    x.balance = c.number_or("router_aux_loss_coef", 0.001F);
    x.shared_hidden = shared;
  }
  Mamba2Mixer m;
  const int64_t inner = c.integer_or("mamba_expand", 2, 1, kMost) * s.width;
  m.heads = c.integer_or("mamba_n_heads", 128, 1, kMost);
  const auto width = c.find("mamba_d_head");
  m.head_width = width && !width->json().is_string() ? width->integer(1, kMost) : inner / m.heads;
  check(m.heads * m.head_width == inner, "{}: mamba_n_heads: {} heads of {} are not {}", c.place(), m.heads,
        m.head_width, inner);
  m.groups = c.integer_or("mamba_n_groups", 1, 1, kMost);
  m.state = c.integer_or("mamba_d_state", 256, 1, kMost);
  m.kernel = c.integer_or("mamba_d_conv", 4, 2, kMost);
  m.bias = c.boolean_or("mamba_proj_bias", false);
  m.convolution_bias = c.boolean_or("mamba_conv_bias", true);
  std::vector<std::string> layers;
  for (const bool attention :
       read_layer_types(c, s.layers, "attention", "mamba", [](int64_t) { return false; }))
    layers.push_back(attention ? kDefaultKind : "mamba");
  give_blocks(s, layers, {{"mamba", with_mixer(s, m)}});
  return s;
}

OrderedJson write_granitemoehybrid(const ModelSpec& s) {
  const ModelSpec all = as_if_all_attend(s);
  OrderedJson c = granite_family().write_config(all);
  const ExpertsSpec& x = s.experts;
  c["model_type"] = "granitemoehybrid";
  c["architectures"] = {"GraniteMoeHybridForCausalLM"};
  c.erase("mlp_bias");
  c["position_embedding_type"] = all.positions == Positions::rotary ? "rope" : "nope";
  c["num_local_experts"] = x.count;
  c["num_experts_per_tok"] = x.chosen;
  c["router_aux_loss_coef"] = decimal(x.balance);
  c["shared_intermediate_size"] = x.count > 0 ? x.shared_hidden : s.hidden;
  c["layer_types"] = write_layer_types(s, "attention", "mamba");
  if (const Mamba2Mixer* m = first_mixer<Mamba2Mixer>(s)) {
    c["mamba_expand"] = m->heads * m->head_width / s.width;
    c["mamba_n_heads"] = m->heads;
    c["mamba_d_head"] = m->head_width;
    c["mamba_n_groups"] = m->groups;
    c["mamba_d_state"] = m->state;
    c["mamba_d_conv"] = m->kernel;
    c["mamba_proj_bias"] = m->bias;
    c["mamba_conv_bias"] = m->convolution_bias;
  }
  return c;
}

// The network beside the experts, or in their place, has its halves in one tensor.
std::vector<WeightName> granitemoehybrid_weights(const ModelSpec& given) {
  ModelSpec s = given;
  s.experts.shared_hidden = 0;
  for (BlockKind& kind : s.kinds) kind.block.experts.shared_hidden = 0;
  std::vector<WeightName> all =
      weights_named_as_llama(s, {.up = {"input_linear"},
                                 .down = "output_linear",
                                 .network = "shared_mlp",
                                 .mixture = "block_sparse_moe",
                                 .router = "router.layer",
                                 .expert = {"input_linear.weight", "output_linear.weight"},
                                 .stacked_experts = true,
                                 .mixer = [](WeightNames& n, const ModelSpec& /*spec*/, const BlockSpec& b,
                                             const std::string& e, const std::string& file) {
                                   add_mamba2(n, *b.mixer.get_if<Mamba2Mixer>(), e, file + "mamba.");
                                 }});
  for (int64_t l = 0; l < s.layers && given.experts.count > 0; ++l) {
    const std::string e = fmt::format("decoder.block.{}.feed_forward.shared.", l),
                      f = fmt::format("model.layers.{}.shared_mlp.", l);
    all.push_back({e + "up.weight", f + "input_linear.weight"});
    all.push_back({e + "down.weight", f + "output_linear.weight"});
  }
  return all;
}

}  // namespace

const Family& granitemoehybrid_family() {
  static const Family family = [] {
    Family f = llama_like("granitemoehybrid", {"GraniteMoeHybridForCausalLM", ""}, read_granitemoehybrid,
                          write_granitemoehybrid, granitemoehybrid_weights);
    f.expresses = is_hybrid<Mamba2Mixer>;
    return f;
  }();
  return family;
}

}  // namespace qkv
