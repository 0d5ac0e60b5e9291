// Qwen3's mixture of experts: Hugging Face's Qwen3MoeForCausalLM.

#include <algorithm>

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

namespace {

// A dense layer of a model whose other layers have experts.
BlockSpec without_experts(const ModelSpec& s) {
  BlockSpec block = s;
  block.experts = {};
  return block;
}

}  // namespace

const Family& qwen3_moe_family() {
  static const Family family = llama_like(
      "qwen3_moe", {"Qwen3MoeForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = qwen3_family().read_config(c);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 4);
        read_head_width(c, s.width / s.attention.heads, s);
        s.attention.patterns.clear();  // all layers have the window, whatever max_window_layers says
        if (c.boolean_or("use_sliding_window", false)) read_window(c, s, 4096);
        ExpertsSpec& x = s.experts;
        x.count = c.integer_or("num_experts", 128, 1, kMost);
        x.chosen = c.integer_or("num_experts_per_tok", 8, 1, kMost);
        x.hidden = c.integer_or("moe_intermediate_size", 768, 1, kMost);
        x.renormalized = c.boolean_or("norm_topk_prob", false);
        x.balance = c.number_or("router_aux_loss_coef", 0.001F);
        const auto step = c.integer_or("decoder_sparse_step", 1, 1, kMost);
        std::vector<int64_t> named;
        if (const auto field = c.find("mlp_only_layers")) named = field->integers(0, kMost);
        std::vector<bool> dense;
        for (int64_t l = 0; l < std::min<int64_t>(s.layers, 4096); ++l)
          dense.push_back((l + 1) % step != 0 || std::ranges::find(named, l) != named.end());
        give_block(s, dense, "dense", without_experts(s));
        return s;
      },
      [](const ModelSpec& s) {
        const ExpertsSpec x = s.experts_in_use();
        OrderedJson c = qwen3_family().write_config(s);
        c["model_type"] = "qwen3_moe";
        c["architectures"] = {"Qwen3MoeForCausalLM"};
        c["num_experts"] = x.count;
        c["num_experts_per_tok"] = x.chosen;
        c["moe_intermediate_size"] = x.hidden;
        c["decoder_sparse_step"] = 1;
        c["mlp_only_layers"] = OrderedJson::array();
        for (int64_t l = 0; l < s.layers; ++l)
          if (!s.block(l).experts.in_layer(l)) c["mlp_only_layers"].push_back(l);
        c["norm_topk_prob"] = x.renormalized;
        c["router_aux_loss_coef"] = decimal(x.balance);
        return c;
      });
  return family;
}

}  // namespace qkv
