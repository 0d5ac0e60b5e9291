// ERNIE 4.5's mixture of experts: Hugging Face's Ernie4_5_MoeForCausalLM.

#include <algorithm>

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

const Family& ernie4_5_moe_family() {
  static const Family family = [] {
    Family f = llama_like(
        "ernie4_5_moe", {"Ernie4_5_MoeForCausalLM", ""},
        [](const JsonField& c) {
          check(!c.boolean_or("use_bias", false), "{}: use_bias: only false is supported with experts",
                c.place());
          constexpr double kLargestFloor = 1e-6;  // a larger floor changes weights
          check(c.number_or("moe_norm_min", 1e-12F) <= kLargestFloor,
                "{}: moe_norm_min: at most {} is supported", c.place(), kLargestFloor);
          ModelSpec s = ernie4_5_family().read_config(c);
          AttentionSpec& a = s.attention;
          a.kv_heads = read_kv_heads(c, a.heads, 4);
          read_head_width(c, s.width / a.heads, s);
          const BlockSpec dense = s;
          ExpertsSpec& x = s.experts;
          x.count = c.integer_or("moe_num_experts", 64, 1, kMost);
          x.chosen = c.integer_or("moe_k", 6, 1, kMost);
          x.hidden = c.integer_or("moe_intermediate_size", 1536, 1, int64_t{1} << 24);
          x.shared_hidden = c.integer_or("moe_num_shared_experts", 2, 0, 1 << 16) * x.hidden;
          x.choice_bias = true;
          x.choice_rate = 0;  // fixed in training
          x.balance = c.number_or("router_aux_loss_coef", 0.001F);
          const auto first = c.integer_or("moe_layer_start_index", 1, 0, kMost),
                     every = c.integer_or("moe_layer_interval", 1, 1, kMost);
          auto last = s.layers - 1;
          if (const auto field = c.find("moe_layer_end_index"))
            if (const auto given = field->integer(-1, kMost); given >= 0) last = given;
          std::vector<bool> is_dense;
          for (int64_t l = 0; l < std::min<int64_t>(s.layers, 4096); ++l)
            is_dense.push_back((l + 1) % every != 0 || l < first || l > last);
          give_block(s, is_dense, "dense", dense);
          return s;
        },
        [](const ModelSpec& s) {
          const ExpertsSpec x = s.experts_in_use();
          OrderedJson c = ernie4_5_family().write_config(s);
          c["model_type"] = "ernie4_5_moe";
          c["architectures"] = {"Ernie4_5_MoeForCausalLM"};
          c["moe_num_experts"] = x.count;
          c["moe_k"] = x.chosen;
          c["moe_intermediate_size"] = x.hidden;
          c["moe_num_shared_experts"] = x.hidden > 0 ? x.shared_hidden / x.hidden : 0;
          c["router_aux_loss_coef"] = decimal(x.balance);
          // The range of layers with experts; an interval of more than 1 is written if it says the same.
          std::vector<int64_t> with;
          for (int64_t l = 0; l < s.layers; ++l)
            if (s.block(l).experts.in_layer(l)) with.push_back(l);
          const int64_t every = with.size() > 1 ? with[1] - with[0] : 1;
          c["moe_layer_interval"] = every;
          c["moe_layer_start_index"] = with.empty() ? s.layers : with.front();
          c["moe_layer_end_index"] = with.empty() ? s.layers : with.back();
          return c;
        },
        [](const ModelSpec& s) {
          return weights_named_as_llama(s, {.choice_bias = "moe_statics.e_score_correction_bias",
                                            .choice_bias_in_row = true,
                                            .shared = "shared_experts"});
        });
    // Published files have layers that predict further tokens.
    f.ignores = [](const ModelSpec& spec, const std::string& name) {
      return is_extra_in_llama(spec, name) || name.starts_with("model.mtp_");
    };
    return f;
  }();
  return family;
}

}  // namespace qkv
