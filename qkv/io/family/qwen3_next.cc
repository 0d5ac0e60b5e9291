// Qwen3-Next: Hugging Face's Qwen3NextForCausalLM, layers of Gated DeltaNet and of gated attention, with
// experts.

#include <algorithm>

#include "qkv/base/json_value.h"
#include "qkv/io/family/qwen3_next_parts.h"

namespace qkv {
namespace {

ModelSpec read_qwen3_next(const JsonField& c) {
  ModelSpec s = read_qwen3_next_like(c, {16, 2, 256});
  ExpertsSpec x;
  x.count = c.integer_or("num_experts", 512, 0, kMost);
  x.chosen = c.integer_or("num_experts_per_tok", 10, 1, kMost);
  x.hidden = c.integer_or("moe_intermediate_size", 512, 1, kMost);
  x.renormalized = c.boolean_or("norm_topk_prob", true);
  x.shared_hidden = c.integer_or("shared_expert_intermediate_size", 512, 1, kMost);
  x.shared_gated = true;
  x.balance = c.number_or("router_aux_loss_coef", 0.001F);
  const auto step = c.integer_or("decoder_sparse_step", 1, 1, kMost);
  std::vector<int64_t> dense;
  if (const auto field = c.find("mlp_only_layers")) dense = field->integers(0, kMost);
  const GatedDeltaMixer m = read_gated_delta(c, {16, 32});
  BlockSpec attends = s, with_experts = s;
  if (x.count > 0) with_experts.experts = x;
  static_cast<BlockSpec&>(s) = with_experts;
  std::vector<std::string> layers;
  const std::vector<bool> full = read_full_layers(c, s.layers);
  for (size_t l = 0; l < full.size(); ++l) {
    const auto layer = static_cast<int64_t>(l);
    const bool mixture =
        x.count > 0 && (layer + 1) % step == 0 && std::ranges::find(dense, layer) == dense.end();
    layers.push_back(full[l]                   ? mixture || x.count == 0 ? kDefaultKind : "dense"
                     : mixture || x.count == 0 ? "linear"
                                               : "linear_dense");
  }
  give_blocks(s, layers,
              {{"dense", attends},
               {"linear", with_mixer(with_experts, m)},
               {"linear_dense", with_mixer(attends, m)}});
  return s;
}

OrderedJson write_qwen3_next(const ModelSpec& s) {
  OrderedJson c = write_qwen3_next_like(s, "qwen3_next", "Qwen3NextForCausalLM");
  const ExpertsSpec x = s.experts_in_use();
  c["num_experts"] = x.count;
  c["num_experts_per_tok"] = x.chosen;
  c["moe_intermediate_size"] = x.hidden > 0 ? x.hidden : 512;
  c["shared_expert_intermediate_size"] = x.shared_hidden > 0 ? x.shared_hidden : 512;
  c["norm_topk_prob"] = x.renormalized;
  c["router_aux_loss_coef"] = decimal(x.balance);
  c["decoder_sparse_step"] = 1;
  c["mlp_only_layers"] = OrderedJson::array();
  for (int64_t l = 0; l < s.layers && x.count > 0; ++l)
    if (!s.block(l).experts.in_layer(l)) c["mlp_only_layers"].push_back(l);
  return c;
}

}  // namespace

const Family& qwen3_next_family() {
  static const Family family = qwen3_next_like(
      "qwen3_next", "Qwen3NextForCausalLM", read_qwen3_next, write_qwen3_next, [](const ModelSpec& s) {
        return weights_named_as_llama(
            s, {.mixer = [](WeightNames& n, const ModelSpec& /*spec*/, const BlockSpec& b,
                            const std::string& e, const std::string& file) {
              add_gated_delta(n, *b.mixer.get_if<GatedDeltaMixer>(), true, e, file + "linear_attn.");
            }});
      });
  return family;
}

}  // namespace qkv
