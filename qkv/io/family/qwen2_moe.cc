// Qwen1.5-MoE and Qwen2's mixture of experts: Hugging Face's Qwen2MoeForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

const Family& qwen2_moe_family() {
  static const Family family = llama_like(
      "qwen2_moe", {"Qwen2MoeForCausalLM"},
      [](const JsonField& c) {
        // Versions of the authors' code disagree on the layers that max_window_layers means.
        check(!c.boolean_or("use_sliding_window", false) || c.find("layer_types") ||
                  c.integer_or("max_window_layers", 28, 0, kMost) == 0,
              "{}: max_window_layers: without layer_types only 0 is supported, all layers' windows",
              c.place());
        ModelSpec s = qwen2_family().read_config(c);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 16);
        ExpertsSpec& x = s.experts;
        x.count = c.integer_or("num_experts", 60, 1, kMost);
        x.chosen = c.integer_or("num_experts_per_tok", 4, 1, kMost);
        x.hidden = c.integer_or("moe_intermediate_size", 1408, 1, kMost);
        x.every = c.integer_or("decoder_sparse_step", 1, 1, kMost);
        x.first = x.every - 1;
        if (const auto dense = c.find("mlp_only_layers")) {
          const std::vector<int64_t> layers = dense->integers(0, kMost);
          for (size_t i = 0; i < layers.size(); ++i)
            check(x.every == 1 && layers[i] == static_cast<int64_t>(i),
                  "{}: only the first layers, [0, 1, ...] with decoder_sparse_step 1, are supported",
                  dense->place());
          if (!layers.empty()) x.first = std::ssize(layers);
        }
        x.renormalized = c.boolean_or("norm_topk_prob", false);
        x.shared_hidden = c.integer_or("shared_expert_intermediate_size", 5632, 1, kMost);
        x.shared_gated = true;
        x.balance = c.number_or("router_aux_loss_coef", 0.001F);
        return s;
      },
      [](const ModelSpec& s) {
        const ExpertsSpec& x = s.experts;
        OrderedJson c = qwen2_family().write_config(s);
        c["model_type"] = "qwen2_moe";
        c["architectures"] = {"Qwen2MoeForCausalLM"};
        if (c["use_sliding_window"].get<bool>()) c["layer_types"] = layer_types(s);
        c["num_experts"] = x.count;
        c["num_experts_per_tok"] = x.chosen;
        c["moe_intermediate_size"] = x.hidden;
        c["decoder_sparse_step"] = x.every;
        c["mlp_only_layers"] = OrderedJson::array();
        for (int64_t l = 0; x.every == 1 && l < x.first; ++l) c["mlp_only_layers"].push_back(l);
        c["norm_topk_prob"] = x.renormalized;
        c["shared_expert_intermediate_size"] = x.shared_hidden;
        c["router_aux_loss_coef"] = decimal(x.balance);
        return c;
      });
  return family;
}

}  // namespace qkv
