// Random decoders: Llama and its relatives.
#include <cmath>

#include "tests/fuzz/shape_parts.h"
#include "tests/fuzz/shape_tables.h"

namespace qkv::testing {

std::span<const ShapeFamily> llama_shapes() {
  static const ShapeFamily families[] = {
      {"llama",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.attention.bias = s.attention.out_bias = d.chance(0.3);
         s.feed_forward_bias = d.chance(0.3);
         scale_angles(s, d);
         s.tied = d.chance(0.5);
         end_decoder(s, d);
         return s;
       }},
      {"mistral",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.attention.patterns = {{.window = d.between(1, 9)}};
         return s;
       }},
      {"qwen2",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.attention.bias = true;
         return s;
       }},
      {"gemma",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.normalization = Normalization::rms_plus_one;
         s.embedding_scaled = s.tied = true;
         s.activation = Activation::gelu_tanh;
         return s;
       }},
      {"gemma2",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.normalization = Normalization::rms_plus_one;
         s.norm_placement = NormPlacement::sandwich;
         s.embedding_scaled = s.tied = true;
         s.activation = Activation::gelu_tanh;
         s.attention.scale = static_cast<float>(1 / std::sqrt(12.0));
         s.attention.cap = 50;
         s.logit_cap = 30;
         s.attention.patterns = {{.window = d.between(1, 6)}, {}};
         return s;
       }},
      {"phi",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.gated = false;
         s.normalization = Normalization::layer;
         s.branches = Branches::one_norm;
         s.attention.bias = s.attention.out_bias = s.feed_forward_bias = s.unembedding_bias = true;
         if (d.chance(0.3)) s.attention.query_key_norm = QueryKeyNorm::layer;
         turn(s, d, false);
         return s;
       }},
      {"phi3",
       [](Draw& d) {
         ModelSpec s = llama(d);
         turn(s, d, false);
         scale_angles(s, d);
         return s;
       }},
      {"olmo",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.normalization = Normalization::layer_plain;
         s.norm_epsilon = 1e-5F;
         if (d.chance(0.5)) s.attention.clip = 0.75F;
         return s;
       }},
      {"olmo2",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.norm_placement = NormPlacement::branch;
         s.attention.query_key_norm = QueryKeyNorm::whole;
         return s;
       }},
      {"stablelm",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.normalization = Normalization::layer;
         if (d.chance(0.5)) s.branches = Branches::one_norm;
         s.attention.bias = d.chance(0.5);
         if (d.chance(0.5)) s.attention.query_key_norm = QueryKeyNorm::layer_heads;
         turn(s, d, false);
         return s;
       }},
      {"starcoder2",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.normalization = Normalization::layer;
         s.gated = false;
         s.attention.bias = s.attention.out_bias = s.feed_forward_bias = s.tied = true;
         return s;
       }},
      {"granite",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.attention.scale = 0.25F;
         s.embedding_multiplier = 3;
         s.residual_multiplier = 0.5F;
         s.logit_multiplier = 0.5F;
         return s;
       }},
      {"cohere",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.normalization = Normalization::layer_scale;
         s.branches = Branches::one_norm;
         s.attention.rotary.layout = RotaryLayout::interleaved;
         s.logit_multiplier = 0.25F;
         s.tied = true;
         if (d.chance(0.5)) s.attention.query_key_norm = QueryKeyNorm::layer_heads;
         return s;
       }},
      {"qwen3",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.attention.query_key_norm = QueryKeyNorm::heads;
         s.attention.bias = s.attention.out_bias = d.chance(0.5);
         if (d.chance(0.5)) s.attention.patterns = {{}, {.window = d.between(1, 6)}};
         if (s.layers != 2) s.attention.patterns.clear();
         return s;
       }},
      {"qwen3_moe",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.attention.query_key_norm = QueryKeyNorm::heads;
         const BlockSpec dense = s;
         s.experts = {.count = d.between(2, 5), .chosen = d.between(1, 2), .hidden = d.between(1, 9)};
         s.experts.renormalized = d.chance(0.5);
         if (s.layers > 1) {
           s.kinds = {{"dense", dense}};
           for (int64_t l = 0; l < s.layers; ++l)
             s.layer_kinds.push_back(l + 1 == s.layers ? "dense" : "default");
         }
         return s;
       }},
      {"gemma3_text",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.normalization = Normalization::rms_plus_one;
         s.norm_placement = NormPlacement::sandwich;
         s.embedding_scaled = s.tied = true;
         s.activation = Activation::gelu_tanh;
         s.attention.query_key_norm = QueryKeyNorm::heads_plus_one;
         s.layers = 3;
         BlockSpec local = s;
         local.attention.rotary.base = 100;
         local.attention.patterns = {{.window = d.between(1, 6)}};
         s.kinds = {{"local", local}};
         s.layer_kinds = {"local", "default"};
         return s;
       }},
      {"gemma4_text",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.norm_placement = NormPlacement::sandwich;
         s.embedding_scaled = s.tied = s.block_scaled = true;
         s.activation = Activation::gelu_tanh;
         s.layer_input_width = d.between(0, 5);
         AttentionSpec& a = s.attention;
         a.bias = a.out_bias = s.feed_forward_bias = false;
         a.scaled = false;
         a.query_key_norm = QueryKeyNorm::heads;
         a.value_norm = true;
         s.layers = 5;
         BlockSpec local = s;
         local.attention.patterns = {{.window = d.between(1, 6)}};
         a.d_qk = a.d_vo = a.rotary.width = 2 * d.between(2, 6);
         a.rotary.turned = d.chance(0.7) ? 2 * d.between(1, a.d_qk / 2 - 1) : 0;
         a.values_of_keys = d.chance(0.5);
         if (a.values_of_keys && d.chance(0.5)) a.kv_heads = 1;
         BlockSpec reused = s, local_reused = local;
         reused.attention.reused_keys = local_reused.attention.reused_keys = true;
         if (d.chance(0.5)) reused.hidden = local_reused.hidden = 2 * s.hidden;
         s.kinds = {{"local", local}, {"local_reused", local_reused}, {"reused", reused}};
         s.layer_kinds = {"local", "local", "default", "local_reused", "reused"};
         return s;
       }},
      {"exaone4",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.norm_placement = NormPlacement::branch;
         s.attention.query_key_norm = QueryKeyNorm::heads;
         return s;
       }},
      {"smollm3",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.layers = 2;
         BlockSpec global = s;
         global.positions = Positions::none;
         global.attention.rotary = {};
         s.kinds = {{"global", global}};
         s.layer_kinds = {"default", "global"};
         return s;
       }},
      {"ernie4_5",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.attention.rotary.layout = RotaryLayout::interleaved;
         s.attention.bias = s.attention.out_bias = s.feed_forward_bias = d.chance(0.5);
         return s;
       }},
      {"glm",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.attention.bias = true;
         turn(s, d, false);
         s.attention.rotary.layout = RotaryLayout::interleaved;
         return s;
       }},
      {"glm4",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.norm_placement = NormPlacement::sandwich;
         turn(s, d, false);
         s.attention.rotary.layout = RotaryLayout::interleaved;
         return s;
       }},
      {"glm4_moe",
       [](Draw& d) {
         ModelSpec s = llama(d);
         turn(s, d, false);
         s.experts = {.count = d.between(2, 5),
                      .chosen = 2,
                      .hidden = d.between(1, 9),
                      .first = d.between(0, 1),
                      .score = RouterScore::sigmoid,
                      .choice_bias = true,
                      .choice_rate = 0,
                      .balance = 0};
         s.experts.shared_hidden = s.experts.hidden * d.between(1, 2);
         if (d.chance(0.5)) s.mtp = {d.between(1, 3), MtpForm::joined};
         return s;
       }},
      {"granitemoe",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.attention.scale = 0.25F;
         s.residual_multiplier = 0.5F;
         s.experts = {.count = d.between(2, 5), .chosen = d.between(1, 2), .hidden = s.hidden};
         return s;
       }},
      {"nemotron",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.normalization = Normalization::layer_plus_one;
         s.activation = Activation::relu_squared;
         s.gated = false;
         turn(s, d, false);
         return s;
       }},
      {"hunyuan_v1_dense",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.attention.query_key_norm = QueryKeyNorm::heads_rotated;
         return s;
       }},
      {"gpt_oss",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.norm_epsilon = 1e-5F;
         s.attention.bias = s.attention.out_bias = d.chance(0.5);
         s.attention.sinks = true;
         if (s.layers > 1) s.attention.patterns = {{.window = d.between(1, 9)}, {}};
         s.activation = Activation::gelu_quick;
         s.gate_limit = 0.5F;
         s.experts = {.count = d.between(2, 5),
                      .chosen = d.between(1, 2),
                      .hidden = s.hidden,
                      .router_bias = true,
                      .bias = true};
         scale_angles(s, d);
         return s;
       }},
      {"ministral3",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.attention.query_growth = 0.5F;
         s.attention.query_growth_every = d.between(1, 9);
         if (d.chance(0.5)) s.attention.patterns = {{.window = d.between(1, 9)}};
         return s;
       }},
      {"llama4_text",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.layers = d.between(2, 4);
         s.norm_epsilon = 1e-5F;
         s.attention.rotary.layout = RotaryLayout::interleaved;
         s.experts = {.count = d.between(2, 5),
                      .chosen = d.between(1, 2),
                      .hidden = d.between(1, 9),
                      .first = 1,
                      .every = 2,
                      .score = RouterScore::sigmoid,
                      .input_weighted = true,
                      .renormalized = false,
                      .balance = 0};
         s.experts.shared_hidden = s.experts.hidden;
         BlockSpec global = s;
         global.positions = Positions::none;
         global.attention.rotary = {};
         global.attention.query_growth = 0.5F;
         global.attention.query_growth_every = d.between(1, 9);
         global.attention.query_growth_from = 1;
         s.attention.patterns = {{.block = d.between(1, 9)}};
         s.attention.query_key_norm = QueryKeyNorm::unit_rotated;
         s.kinds = {{"global", global}};
         s.layer_kinds = {kDefaultKind, "global"};
         return s;
       }},
      {"apertus",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.gated = false;
         s.activation = Activation::xielu;
         s.attention.query_key_norm = QueryKeyNorm::heads;
         scale_angles(s, d);
         return s;
       }},
      {"mixtral",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.experts = experts(d);
         s.experts.hidden = s.hidden;
         s.experts.renormalized = true;
         return s;
       }},
      {"qwen2_moe",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.attention.bias = true;
         s.experts = experts(d);
         s.experts.shared_hidden = d.between(1, 9);
         s.experts.shared_gated = true;
         s.experts.first = d.between(0, s.layers - 1);
         s.experts.every = d.between(1, 2);
         return s;
       }},
      {"deepseek_v2",
       [](Draw& d) {
         ModelSpec s = llama(d);
         compress(s, d);
         if (d.chance(0.5)) {
           s.experts = experts(d);
           s.experts.renormalized = false;
           s.experts.first = d.between(0, s.layers - 1);
         }
         return s;
       }},
      {"deepseek_v3",
       [](Draw& d) {
         ModelSpec s = llama(d);
         compress(s, d);
         s.attention.bias = s.attention.out_bias = d.chance(0.3);
         const int64_t groups = d.between(1, 3);
         s.experts = experts(d);
         s.experts.count = groups * d.between(2, 3);
         s.experts.chosen = d.between(1, 2);
         s.experts.groups = groups;
         s.experts.chosen_groups = d.between(1, groups);
         s.experts.score = RouterScore::sigmoid;
         s.experts.choice_bias = true;
         s.experts.shared_hidden = d.between(1, 9);
         s.experts.scale = 2.5F;
         s.experts.first = d.between(0, s.layers - 1);
         if (d.chance(0.5)) s.mtp = {d.between(1, 3), MtpForm::joined};
         return s;
       }},
  };
  return families;
}

}  // namespace qkv::testing
