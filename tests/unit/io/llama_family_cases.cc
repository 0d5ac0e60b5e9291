// Models that Llama's relatives describe.
#include <cmath>

#include "tests/unit/io/family_cases.h"
#include "tests/unit/io/model_dir_testing.h"

namespace qkv {
namespace {

// A decoder like Phi.
ModelSpec phi() {
  ModelSpec s = llama();
  s.gated = false;
  s.normalization = Normalization::layer;
  s.branches = Branches::one_norm;
  s.attention.bias = s.attention.out_bias = s.feed_forward_bias = s.unembedding_bias = true;
  s.attention.rotary.width = 2;
  return s;
}

// A decoder like Cohere's.
ModelSpec cohere() {
  ModelSpec s = llama();
  s.normalization = Normalization::layer_scale;
  s.branches = Branches::one_norm;
  s.attention.rotary.layout = RotaryLayout::interleaved;
  s.logit_multiplier = 0.25F;
  s.tied = true;
  return s;
}

const FamilyCase kCases[] = {
    {"llama", [](ModelSpec&) {}},
    {"llama",
     [](ModelSpec& s) {
       s.attention.bias = s.attention.out_bias = true;
       s.attention.rotary.base = 500000;
       s.attention.rotary.scaling = RotaryScaling::llama3;
       s.attention.rotary.factor = 8;
       s.attention.rotary.original_context = 4;
     }},
    {"llama",
     [](ModelSpec& s) {
       RotarySpec& r = s.attention.rotary;
       r.scaling = RotaryScaling::yarn;
       r.factor = 2;
       r.original_context = s.context;
       r.high = 32;
       r.magnitude = 1.25;
     }},
    {"mistral", [](ModelSpec& s) { s.attention.patterns = {{.window = 5}}; }},
    {"qwen2", [](ModelSpec& s) { s.attention.bias = true; }},
    {"qwen2",
     [](ModelSpec& s) {
       s.attention.bias = true;
       s.attention.patterns = {{.window = 5}};
     }},
    {"qwen2",
     [](ModelSpec& s) {
       s.attention.bias = true;
       s.layers = 3;
       s.attention.patterns = {{}, {}, {.window = 5}};
     }},
    {"qwen2",
     [](ModelSpec& s) {
       s.attention.bias = true;
       s.layers = 5;
       s.attention.patterns = {{.window = 5}, {}};
     }},
    {"gemma",
     [](ModelSpec& s) {
       s.normalization = Normalization::rms_plus_one;
       s.embedding_scaled = true;
       s.activation = Activation::gelu_tanh;
       s.tied = true;
     }},
    {"phi", [](ModelSpec& s) { s = phi(); }},
    {"phi3",
     [](ModelSpec& s) {
       s.residual_dropout = 0.25F;
       s.attention.rotary.width = 2;
     }},
    {"olmo",
     [](ModelSpec& s) {
       s.normalization = Normalization::layer_plain;
       s.norm_epsilon = 1e-5F;
     }},
    {"olmo",
     [](ModelSpec& s) {
       s.normalization = Normalization::layer_plain;
       s.norm_epsilon = 1e-5F;
       s.attention.clip = 0.75F;
     }},
    {"olmo2",
     [](ModelSpec& s) {
       s.norm_placement = NormPlacement::branch;
       s.attention.query_key_norm = QueryKeyNorm::whole;
     }},
    {"stablelm",
     [](ModelSpec& s) {
       s.normalization = Normalization::layer;
       s.branches = Branches::one_norm;
       s.attention.bias = true;
     }},
    {"starcoder2",
     [](ModelSpec& s) {
       s.normalization = Normalization::layer;
       s.gated = false;
       s.attention.bias = s.attention.out_bias = s.feed_forward_bias = s.tied = true;
     }},
    {"granite",
     [](ModelSpec& s) {
       s.attention.scale = 0.25F;
       s.embedding_multiplier = 3;
       s.residual_multiplier = 0.5F;
       s.logit_multiplier = 0.5F;
     }},
    {"cohere", [](ModelSpec& s) { s = cohere(); }},
    {"qwen3", [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::heads; }},
    {"qwen3",
     [](ModelSpec& s) {
       s.layers = 3;
       s.attention.d_qk = s.attention.d_vo = s.attention.rotary.width = 6;
       s.attention.bias = s.attention.out_bias = true;
       s.attention.query_key_norm = QueryKeyNorm::heads;
       s.attention.patterns = {{}, {.window = 5}, {.window = 5}};
     }},
    {"qwen3_moe",
     [](ModelSpec& s) {
       s.layers = 3;
       s.attention.query_key_norm = QueryKeyNorm::heads;
       BlockSpec dense = s;
       s.experts = {.count = 5, .chosen = 2, .hidden = 7, .balance = 0.5F};
       s.kinds = {{"dense", dense}};
       s.layer_kinds = {"default", "dense"};
     }},
    {"gemma3_text",
     [](ModelSpec& s) {
       s.layers = 3;
       s.normalization = Normalization::rms_plus_one;
       s.norm_placement = NormPlacement::sandwich;
       s.embedding_scaled = s.tied = true;
       s.activation = Activation::gelu_tanh;
       s.attention.query_key_norm = QueryKeyNorm::heads_plus_one;
       s.attention.scale = static_cast<float>(1 / std::sqrt(7.0));
       BlockSpec local = s;
       local.attention.rotary.base = 100;
       local.attention.patterns = {{.window = 3}};
       s.attention.rotary.base = 1e6;
       s.attention.rotary.scaling = RotaryScaling::linear;
       s.attention.rotary.factor = 8;
       s.kinds = {{"local", local}};
       s.layer_kinds = {"local", "default"};
     }},
    {"gemma4_text",
     [](ModelSpec& s) {
       s.layers = 5;
       s.norm_placement = NormPlacement::sandwich;
       s.embedding_scaled = s.tied = s.block_scaled = true;
       s.activation = Activation::gelu_tanh;
       s.logit_cap = 10;
       s.layer_input_width = 3;
       AttentionSpec& a = s.attention;
       a.scaled = false;
       a.query_key_norm = QueryKeyNorm::heads;
       a.value_norm = true;
       BlockSpec local = s;
       local.attention.rotary.base = 100;
       local.attention.patterns = {{.window = 3}};
       a.values_of_keys = true;
       a.kv_heads = 1;
       a.d_qk = a.d_vo = a.rotary.width = 12;
       a.rotary.turned = 4;
       a.rotary.base = 1e6;
       BlockSpec reused = s, local_reused = local;
       reused.attention.reused_keys = local_reused.attention.reused_keys = true;
       reused.hidden = local_reused.hidden = 2 * s.hidden;
       s.kinds = {{"local", local}, {"local_reused", local_reused}, {"reused", reused}};
       s.layer_kinds = {"local", "local", "default", "local_reused", "reused"};
     }},
    {"olmo3",
     [](ModelSpec& s) {
       s.norm_placement = NormPlacement::branch;
       s.attention.query_key_norm = QueryKeyNorm::whole;
       BlockSpec local = s;
       local.attention.patterns = {{.window = 3}};
       RotarySpec& r = s.attention.rotary;
       r.scaling = RotaryScaling::yarn;
       r.factor = 2;
       r.original_context = 4;
       r.high = 32;
       r.magnitude = 1.25;
       s.kinds = {{"local", local}};
       s.layer_kinds = {"local", "default"};
     }},
    {"cohere2",
     [](ModelSpec& s) {
       s = cohere();
       BlockSpec global = s;
       global.positions = Positions::none;
       global.attention.rotary = {};
       s.layers = 3;
       s.attention.patterns = {{.window = 3}};
       s.kinds = {{"global", global}};
       s.layer_kinds = {"default", "default", "global"};
     }},
    {"exaone4",
     [](ModelSpec& s) {
       s.norm_placement = NormPlacement::branch;
       s.attention.query_key_norm = QueryKeyNorm::heads;
       BlockSpec global = s;
       global.positions = Positions::none;
       global.attention.rotary = {};
       s.attention.patterns = {{.window = 3}};
       s.kinds = {{"global", global}};
       s.layer_kinds = {"default", "global"};
     }},
    {"exaone4",
     [](ModelSpec& s) {
       s.norm_placement = NormPlacement::branch;
       s.attention.query_key_norm = QueryKeyNorm::heads;
     }},
    {"smollm3",
     [](ModelSpec& s) {
       BlockSpec global = s;
       global.positions = Positions::none;
       global.attention.rotary = {};
       s.kinds = {{"global", global}};
       s.layer_kinds = {"default", "global"};
     }},
    {"ministral",
     [](ModelSpec& s) {
       s.attention.patterns = {{.window = 5}, {}};
     }},
    {"seed_oss",
     [](ModelSpec& s) {
       s.attention.bias = true;
       s.residual_dropout = 0.125F;
     }},
    {"ernie4_5", [](ModelSpec& s) { s.attention.rotary.layout = RotaryLayout::interleaved; }},
    {"ernie4_5_moe",
     [](ModelSpec& s) {
       s.layers = 3;
       s.attention.rotary.layout = RotaryLayout::interleaved;
       s.tied = true;
       BlockSpec dense = s;
       s.experts = {
           .count = 5, .chosen = 2, .hidden = 7, .choice_bias = true, .choice_rate = 0, .shared_hidden = 14};
       s.kinds = {{"dense", dense}};
       s.layer_kinds = {"dense", "default", "default"};
     }},
    {"glm",
     [](ModelSpec& s) {
       s.attention.rotary.layout = RotaryLayout::interleaved;
       s.attention.rotary.width = 2;
       s.attention.bias = true;
     }},
    {"glm4",
     [](ModelSpec& s) {
       s.norm_placement = NormPlacement::sandwich;
       s.attention.rotary.layout = RotaryLayout::interleaved;
       s.attention.rotary.width = 2;
     }},
    {"glm4_moe",
     [](ModelSpec& s) {
       s.layers = 3;
       s.attention.rotary.width = 2;
       s.attention.query_key_norm = QueryKeyNorm::heads;
       s.experts = {.count = 4,
                    .chosen = 2,
                    .hidden = 5,
                    .first = 1,
                    .score = RouterScore::sigmoid,
                    .scale = 1.5F,
                    .choice_bias = true,
                    .choice_rate = 0,
                    .groups = 2,
                    .chosen_groups = 1,
                    .shared_hidden = 5,
                    .balance = 0};
       s.mtp = {1, MtpForm::joined};
     }},
    {"granitemoe",
     [](ModelSpec& s) {
       s.attention.scale = 0.25F;
       s.residual_multiplier = 0.5F;
       s.experts = {.count = 5, .chosen = 3, .hidden = s.hidden, .balance = 0.5F};
     }},
    {"nemotron",
     [](ModelSpec& s) {
       s.normalization = Normalization::layer_plus_one;
       s.activation = Activation::relu_squared;
       s.gated = false;
       s.attention.rotary.width = 2;
     }},
    {"hunyuan_v1_dense", [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::heads_rotated; }},
    {"gpt_oss",
     [](ModelSpec& s) {
       s.norm_epsilon = 1e-5F;
       s.attention.bias = s.attention.out_bias = s.attention.sinks = true;
       s.attention.patterns = {{.window = 3}, {}};
       s.activation = Activation::gelu_quick;
       s.gate_limit = 7;
       s.hidden = 6;
       s.experts = {.count = 4, .hidden = 6, .router_bias = true, .bias = true, .balance = 0.5F};
       RotarySpec& r = s.attention.rotary;
       r.scaling = RotaryScaling::yarn;
       r.factor = 8;
       r.low = 1;
       r.high = 32;
       r.original_context = 4;
       r.magnitude = 1.25;
       r.truncated = false;
     }},
    {"ministral3",
     [](ModelSpec& s) {
       s.attention.query_growth = 0.5F;
       s.attention.query_growth_every = 3;
       s.attention.patterns = {{.window = 5}};
     }},
    {"llama4_text",
     [](ModelSpec& s) {
       s.layers = 4;
       s.norm_epsilon = 1e-5F;
       s.attention.rotary.layout = RotaryLayout::interleaved;
       s.experts = {.count = 3,
                    .chosen = 2,
                    .hidden = 5,
                    .first = 1,
                    .every = 2,
                    .score = RouterScore::sigmoid,
                    .input_weighted = true,
                    .renormalized = false,
                    .shared_hidden = 5,
                    .balance = 0};
       BlockSpec global = s;
       global.positions = Positions::none;
       global.attention.rotary = {};
       global.attention.query_growth = 0.125F;
       global.attention.query_growth_every = 4;
       global.attention.query_growth_from = 1;
       s.attention.patterns = {{.block = 3}};
       s.attention.query_key_norm = QueryKeyNorm::unit_rotated;
       s.kinds = {{"global", global}};
       s.layer_kinds = {"default", "default", "default", "global"};
     }},
    {"apertus",
     [](ModelSpec& s) {
       s.gated = false;
       s.activation = Activation::xielu;
       s.attention.query_key_norm = QueryKeyNorm::heads;
     }},
    {"gemma2",
     [](ModelSpec& s) {
       s.normalization = Normalization::rms_plus_one;
       s.norm_placement = NormPlacement::sandwich;
       s.embedding_scaled = true;
       s.activation = Activation::gelu_tanh;
       s.tied = true;
       s.attention.scale = static_cast<float>(1 / std::sqrt(12.0));
       s.attention.cap = 50;
       s.logit_cap = 30;
       s.attention.patterns = {{.window = 5}, {}};
     }},
    {"mixtral",
     [](ModelSpec& s) {
       s.experts.count = 4;
       s.experts.hidden = s.hidden;
       s.experts.balance = 0.25F;
     }},
    {"qwen2_moe",
     [](ModelSpec& s) {
       s.attention.bias = true;
       s.experts = {.count = 5, .chosen = 3, .hidden = 7, .first = 1, .every = 2, .renormalized = false};
       s.experts.shared_hidden = 6;
       s.experts.shared_gated = true;
     }},
    {"qwen2_moe",
     [](ModelSpec& s) {
       s.attention.bias = true;
       s.attention.patterns = {{}, {.window = 5}};
       s.experts = {.count = 5, .chosen = 3, .hidden = 7, .renormalized = false};
       s.experts.shared_hidden = 6;
       s.experts.shared_gated = true;
     }},
    {"deepseek_v2",
     [](ModelSpec& s) {
       AttentionSpec& a = s.attention;
       a.kv_heads = a.heads;
       s.mixer = LatentMixer{6};
       a.d_qk = 5;
       a.d_vo = 3;
       a.rotary.width = 2;
       a.rotary.layout = RotaryLayout::interleaved;
     }},
    {"deepseek_v2",
     [](ModelSpec& s) {
       AttentionSpec& a = s.attention;
       a.kv_heads = a.heads;
       s.mixer = LatentMixer{6};
       a.d_qk = 5;
       a.d_vo = 3;
       const double m = 0.1 * 0.5 * std::log(4.0) + 1;
       a.rotary = {.width = 4,
                   .layout = RotaryLayout::interleaved,
                   .scaling = RotaryScaling::yarn,
                   .factor = 4,
                   .original_context = 4,
                   .high = 32,
                   .magnitude = (0.1 * std::log(4.0) + 1) / m};
       a.scale = static_cast<float>(m * m / std::sqrt(5.0));
       s.experts = {.count = 6, .chosen = 2, .hidden = 4, .first = 1, .renormalized = false, .scale = 2.5F};
       s.experts.groups = 3;
       s.experts.chosen_groups = 2;
     }},
    {"deepseek_v3",
     [](ModelSpec& s) {
       AttentionSpec& a = s.attention;
       a.kv_heads = a.heads;
       a.bias = a.out_bias = true;
       s.mixer = LatentMixer{6, 7};
       a.rotary.width = 2;
       a.rotary.layout = RotaryLayout::interleaved;
       s.experts = {.count = 6, .chosen = 2, .hidden = 4, .score = RouterScore::sigmoid, .scale = 2.5F};
       s.experts.choice_bias = true;
       s.experts.choice_rate = 0;
       s.experts.shared_hidden = 8;
       s.mtp = {2, MtpForm::joined};
     }},
    {"qkv",
     [](ModelSpec& s) {
       s.mtp = {2, MtpForm::chained, 0.5F};
     }},
    {"qkv",
     [](ModelSpec& s) {
       s.mtp = {1, MtpForm::joined};
     }},
    {"phi",
     [](ModelSpec& s) {
       s = phi();
       s.attention.query_key_norm = QueryKeyNorm::layer;
     }},
    {"stablelm",
     [](ModelSpec& s) {
       s.normalization = Normalization::layer;
       s.attention.query_key_norm = QueryKeyNorm::layer_heads;
     }},
    {"cohere",
     [](ModelSpec& s) {
       s = cohere();
       s.attention.query_key_norm = QueryKeyNorm::layer_heads;
     }},
    {"phi3",
     [](ModelSpec& s) {
       s.residual_dropout = 0.25F;
       RotarySpec& r = s.attention.rotary;
       r.scaling = RotaryScaling::longrope;
       r.short_factors = {1, 1.5};
       r.long_factors = {2, 5.25};
       r.original_context = 4;
       r.factor = 2;
       r.magnitude = std::sqrt(1.5);
     }},
    {"llama", [](ModelSpec& s) { classify(s); }},
};

}  // namespace

std::span<const FamilyCase> llama_family_cases() {
  return kCases;
}

}  // namespace qkv
