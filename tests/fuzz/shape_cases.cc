#include "tests/fuzz/shape_cases.h"

#include <algorithm>
#include <cmath>

#include "qkv/base/error.h"
#include "qkv/base/json_value.h"
#include "tests/fuzz/shape_parts.h"

namespace qkv::testing {
namespace {

using Make = ModelSpec (*)(Draw&);

struct ShapeFamily {
  const char* name;
  Make make;
};

const ShapeFamily kFamilies[] = {
    {"gpt2",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       s.attention.scaled_by_layer = d.chance(0.3);
       end_decoder(s, d);
       return s;
     }},
    {"bert",
     [](Draw& d) {
       ModelSpec s = bert(d);
       if (d.chance(0.15)) {
         s.architecture = Architecture::decoder;
         return s;
       }
       if (d.chance(0.3) && s.context > 1) {
         s.positions = Positions::none;
         s.attention.relative = {
             d.of<RelativeAttention>({RelativeAttention::shaw, RelativeAttention::shaw_both}), s.context - 1};
       }
       end_encoder(s, d, kOfBert);
       if (s.output == Output::tokens && d.chance(0.3)) {
         s.labels = {"next", "random"};
         s.pooler = true;
       }
       return s;
     }},
    {"roberta",
     [](Draw& d) {
       ModelSpec s = bert(d);
       s.family = "roberta";
       s.first_position = d.between(0, 4);
       end_encoder(s, d, kOfBert);
       s.pooler = s.pooler && s.output != Output::tokens;
       return s;
     }},
    {"distilbert",
     [](Draw& d) {
       ModelSpec s = bert(d);
       s.segments = 0;
       end_encoder(s, d, {Output::tokens, Output::sequence_classes, Output::token_classes, Output::span});
       if (s.output == Output::sequence_classes) s.pooler_activation = Activation::relu;
       return s;
     }},
    {"albert",
     [](Draw& d) {
       ModelSpec s = bert(d);
       s.embedding_width = s.head_width = d.between(1, 9);
       s.embedding_projected_last = true;
       s.layer_groups = d.between(1, s.layers);
       end_encoder(s, d, kOfBert);
       return s;
     }},
    {"electra",
     [](Draw& d) {
       ModelSpec s = bert(d);
       s.family = "electra";
       s.embedding_width = s.head_width = d.between(1, 9);
       s.embedding_projected_last = true;
       end_encoder(s, d, kOfBert);
       if (s.output == Output::sequence_classes) s.pooler_activation = Activation::gelu;
       return s;
     }},
    {"big_bird",
     [](Draw& d) {
       ModelSpec s = bert(d);
       s.family = "big_bird";
       const int64_t block = d.between(1, 5), random = d.between(1, 3);
       s.attention.patterns = {{.block = block,
                                .neighbours = 1,
                                .ends = true,
                                .beyond = (5 + 2 * random) * block,
                                .first_block = random + 1}};
       end_encoder(s, d, {Output::tokens, Output::sequence_classes, Output::token_classes, Output::span});
       return s;
     }},
    {"longformer",
     [](Draw& d) {
       ModelSpec s = bert(d);
       const int64_t global = d.between(0, 2);
       for (int64_t l = 0; l < s.layers; ++l)
         s.attention.patterns.push_back({.window = d.between(1, 6), .global = global});
       s.attention.global_projections = true;
       end_encoder(s, d, {Output::tokens, Output::sequence_classes, Output::token_classes, Output::span});
       return s;
     }},
    {"mpnet",
     [](Draw& d) {
       ModelSpec s = bert(d);
       s.segments = 0;
       s.distance_bias = Positions::relative;
       end_encoder(s, d, kOfBert);
       s.pooler = s.pooler && s.output != Output::tokens;
       return s;
     }},
    {"roformer",
     [](Draw& d) {
       ModelSpec s = bert(d);
       if (s.attention.d_qk % 2 != 0) {
         s.attention.d_qk = s.attention.d_vo = s.attention.d_qk + 1;
         s.width = s.head_width = s.attention.heads * s.attention.d_qk;
       }
       turn(s, d, true);
       s.attention.rotary.layout = RotaryLayout::interleaved;
       s.attention.rotary.values = d.chance(0.5);
       end_encoder(s, d, {Output::tokens, Output::sequence_classes, Output::token_classes, Output::span});
       if (s.pooler) s.pooler_activation = s.activation;
       return s;
     }},
    {"deberta",
     [](Draw& d) {
       ModelSpec s = bert(d);
       s.segments = d.chance(0.5) ? 0 : 2;
       if (d.chance(0.5)) s.positions = Positions::none;
       s.attention.relative = {RelativeAttention::disentangled, d.between(2, 9)};
       RelativeSpec& r = s.attention.relative;
       r.by_content = d.chance(0.7);
       r.by_position = !r.by_content || d.chance(0.5);
       s.attention.key_bias = false;
       return s;
     }},
    {"modernbert",
     [](Draw& d) {
       ModelSpec s = bert(d);
       if (s.attention.d_qk % 2 != 0) {
         s.attention.d_qk = s.attention.d_vo = s.attention.d_qk + 1;
         s.width = s.head_width = s.attention.heads * s.attention.d_qk;
       }
       s.segments = 0;
       turn(s, d, true);
       s.attention.bias = s.attention.out_bias = d.chance(0.5);
       s.feed_forward_bias = d.chance(0.5);
       s.head_bias = d.chance(0.5);
       s.gated = true;
       s.norm_placement = NormPlacement::pre;
       s.normalization = d.chance(0.5) ? Normalization::layer : Normalization::layer_scale;
       BlockSpec first = s;
       first.mixer_norm = false;
       if (s.layers > 1) s.attention.patterns = {{.window = d.between(2, 9)}};
       s.kinds = {{"first", first}};
       s.layer_kinds = {"first"};
       s.layer_kinds.resize(static_cast<size_t>(s.layers), kDefaultKind);
       return s;
     }},
    {"deberta-v2",
     [](Draw& d) {
       ModelSpec s = bert(d);
       s.norm_epsilon = 1e-7F;
       s.segments = d.chance(0.5) ? 0 : 2;
       if (d.chance(0.5)) s.positions = Positions::none;
       s.attention.relative = {RelativeAttention::disentangled, d.between(2, 9)};
       RelativeSpec& r = s.attention.relative;
       r.by_content = d.chance(0.7);
       r.by_position = !r.by_content || d.chance(0.5);
       r.shared_projections = d.chance(0.5);
       r.normed = d.chance(0.5);
       if (r.distance >= 6 && d.chance(0.5)) r.buckets = 4;
       end_encoder(s, d, {Output::tokens, Output::sequence_classes, Output::token_classes, Output::span});
       if (s.output == Output::sequence_classes) s.pooler_activation = Activation::gelu;
       return s;
     }},
    {"xlnet",
     [](Draw& d) {
       ModelSpec s = sized(d);
       if (s.width % 2 == 1) {
         s.width *= 2;
         s.attention.d_qk = s.attention.d_vo = s.width / s.attention.heads;
       }
       s.architecture = Architecture::encoder;
       s.norm_placement = NormPlacement::post;
       s.positions = Positions::none;
       s.attention.bias = s.attention.out_bias = false;
       s.attention.relative = {
           .kind = RelativeAttention::transformer_xl, .distance = d.between(0, 6), .segments = true};
       s.unembedding_bias = true;
       end_encoder(s, d, {Output::tokens, Output::sequence_classes, Output::token_classes, Output::span});
       if (s.output == Output::sequence_classes) s.pooling = Pooling::last;
       return s;
     }},
    {"umt5",
     [](Draw& d) {
       ModelSpec s = t5(d);
       s.gated = d.chance(0.5);
       s.relative_by_layer = true;
       return s;
     }},
    {"t5gemma",
     [](Draw& d) {
       ModelSpec s = llama(d);
       add_encoder(s, d);
       s.source_vocab_size = s.vocab_size;
       s.normalization = Normalization::rms_plus_one;
       s.norm_placement = NormPlacement::sandwich;
       s.embedding_scaled = true;
       s.activation = Activation::gelu_tanh;
       s.attention.cap = s.logit_cap = 5;
       s.attention.patterns = {{.window = d.between(1, 9)}, {}};
       const ModelSpec e = llama(d);
       BlockSpec block = s;
       block.attention.heads = e.attention.heads;
       block.attention.kv_heads = e.attention.kv_heads;
       block.attention.d_qk = block.attention.d_vo = block.attention.rotary.width = e.attention.d_qk;
       block.hidden = e.hidden;
       if (e.width != s.width) s.encoder.width = e.width;
       if (e.width == s.width && block == static_cast<const BlockSpec&>(s)) return s;
       s.kinds = {{"encoder", block}};
       s.encoder_layer_kinds = {"encoder"};
       return s;
     }},
    {"t5",
     [](Draw& d) {
       ModelSpec s = t5(d);
       s.gated = d.chance(0.5);
       if (d.chance(0.5)) s.activation = Activation::gelu_tanh;
       return s;
     }},
    {"switch_transformers",
     [](Draw& d) {
       ModelSpec s = t5(d);
       s.experts = experts(d);
       s.experts.chosen = 1;
       s.experts.hidden = s.hidden;
       s.experts.renormalized = false;
       s.experts.first = d.between(0, s.layers - 1);
       s.experts.every = d.between(1, 2);
       s.experts.capacity = d.between(150, 300);  // more is refused
       if (d.chance(0.3)) {
         s.encoder.expert_every = d.between(1, 2);
         s.encoder.expert_first = d.between(0, s.encoder_layers - 1);
       }
       return s;
     }},
    {"bart", [](Draw& d) { return bart(d); }},
    {"led",
     [](Draw& d) {
       ModelSpec s = bart(d);
       BlockSpec e = s.encoder_spec();
       s.encoder = {};
       e.attention.patterns = {{.window = d.between(2, 6)}};
       if (s.encoder_layers > 1 && d.chance(0.5)) e.attention.patterns.push_back({.window = d.between(2, 6)});
       e.attention.global_projections = true;
       s.kinds = {{"encoder", e}};
       s.encoder_layer_kinds = {"encoder"};
       if (d.chance(0.5)) s.encoder.context = s.context + d.between(1, 9);
       return s;
     }},
    {"mbart",
     [](Draw& d) {
       ModelSpec s = bart(d);
       s.norm_placement = NormPlacement::pre;
       s.tied = d.chance(0.7);
       return s;
     }},
    {"marian",
     [](Draw& d) {
       ModelSpec s = bart(d);
       s.positions = Positions::sinusoidal_halves;
       s.stacks_apart = s.embedding_norm = false;
       s.activation = Activation::silu;
       return s;
     }},
    {"pegasus",
     [](Draw& d) {
       ModelSpec s = bart(d);
       s.norm_placement = NormPlacement::pre;
       s.positions = Positions::sinusoidal_halves;
       s.stacks_apart = s.embedding_norm = false;
       s.activation = Activation::relu;
       return s;
     }},
    {"m2m_100",
     [](Draw& d) {
       ModelSpec s = bart(d);
       s.norm_placement = NormPlacement::pre;
       s.positions = Positions::sinusoidal_closed;
       s.first_position = d.chance(0.5) ? 0 : d.between(1, 6);
       s.stacks_apart = s.embedding_norm = s.unembedding_bias = false;
       return s;
     }},
    {"whisper",
     [](Draw& d) {
       ModelSpec s = bart(d);
       s.norm_placement = NormPlacement::pre;
       s.embedding_norm = s.embedding_scaled = s.unembedding_bias = false;
       s.encoder.context = d.between(1, 12);
       s.features = {.kind = FeatureSpec::Kind::frames, .channels = d.between(1, 7)};
       return s;
     }},
    {"vit",
     [](Draw& d) {
       ModelSpec s = images(d, 1);
       if (d.chance(0.3)) {
         s.output = Output::embedding;
         s.labels.clear();
         s.pooler = true;
       }
       return s;
     }},
    {"deit",
     [](Draw& d) {
       ModelSpec s = images(d, 2);
       s.features.distilled = d.chance(0.5);
       return s;
     }},
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
    {"gpt_neox",
     [](Draw& d) {
       ModelSpec s = sized(d, 2);
       s.branches = d.chance(0.7) ? Branches::parallel : Branches::serial;
       s.tied = d.chance(0.5);
       turn(s, d, false);
       end_decoder(s, d);
       return s;
     }},
    {"gptj",
     [](Draw& d) {
       ModelSpec s = sized(d, 2);
       s.attention.bias = s.attention.out_bias = s.tied = false;
       s.branches = Branches::one_norm;
       s.unembedding_bias = true;
       turn(s, d, false);
       s.attention.rotary.layout = RotaryLayout::interleaved;
       return s;
     }},
    {"falcon",
     [](Draw& d) {
       ModelSpec s = sized(d, 2);
       s.attention.bias = s.attention.out_bias = s.feed_forward_bias = d.chance(0.3);
       s.branches = d.of<Branches>({Branches::one_norm, Branches::parallel, Branches::serial});
       if (s.branches == Branches::one_norm) s.attention.kv_heads = 1;
       if (s.branches == Branches::parallel) share_keys(s, d);
       if (d.chance(0.3)) {
         s.positions = Positions::alibi_scaled;
         return s;
       }
       s.attention.d_qk = s.attention.d_vo = (s.attention.d_qk + 1) / 2 * 2;
       s.width = s.attention.heads * s.attention.d_qk;
       turn(s, d, true);
       return s;
     }},
    {"bloom",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       s.positions = Positions::alibi;
       s.embedding_norm = true;
       return s;
     }},
    {"mpt",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       s.positions = Positions::alibi_evens_first;
       s.normalization = Normalization::layer_scale;
       s.activation = Activation::gelu;
       s.attention.bias = s.attention.out_bias = s.feed_forward_bias = false;
       if (d.chance(0.3)) s.attention.clip = 1.5F;
       return s;
     }},
    {"gpt_neo",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       s.attention.bias = s.attention.scaled = false;
       s.attention.patterns = {{}, {.window = d.between(1, 5)}};
       return s;
     }},
    {"gpt_bigcode",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       if (d.chance(0.7)) s.attention.kv_heads = 1;
       return s;
     }},
    {"opt",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       s.activation = Activation::relu;
       if (d.chance(0.5)) s.norm_placement = NormPlacement::post;
       if (d.chance(0.5)) s.embedding_width = d.between(1, 9);
       return s;
     }},
    {"ctrl",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       s.positions = Positions::sinusoidal_halves;
       s.activation = Activation::relu;
       s.embedding_scaled = s.unembedding_bias = true;
       s.norm_epsilon = 1e-6F;
       return s;
     }},
    {"xglm",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       s.positions = Positions::sinusoidal_closed;
       s.activation = Activation::gelu;
       s.embedding_scaled = true;
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
       return s;
     }},
    {"reformer",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       s.norm_epsilon = 1e-12F;
       s.activation = Activation::relu;
       s.branches = Branches::reversible;
       s.tied = s.attention.bias = s.attention.out_bias = false;
       s.unembedding_bias = true;
       s.grid = d.between(1, 5);
       s.context = s.grid * d.between(1, 5);
       s.axial_width = d.between(1, s.width - 1);
       s.attention.patterns = {{.block = d.between(1, 6), .neighbours = d.between(0, 2)}, {}};
       s.attention.shared_query_key = {0, 1};
       s.attention.hashed_beyond = d.between(1, s.context);
       return s;
     }},
    // The engine's own.
    {"decoder",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       s.attention.d_qk = d.between(1, 9);
       s.attention.d_vo = d.between(1, 9);
       share_keys(s, d);
       place(s, d);
       vary(s, d, 5);
       end_decoder(s, d);
       return s;
     }},
    {"encoder",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       s.architecture = Architecture::encoder;
       share_keys(s, d);
       place(s, d);
       if (s.positions == Positions::none) relate(s, d);
       s.segments = d.between(0, 3);
       vary(s, d, 5);
       end_encoder(s, d, kOfBert);
       s.pooling = d.of<Pooling>({Pooling::first, Pooling::last, Pooling::mean});
       return s;
     }},
    {"translator",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       add_encoder(s, d);
       place(s, d);
       if (s.positions == Positions::none) relate(s, d);
       s.stacks_apart = d.chance(0.5);
       vary(s, d, 4);
       if (s.encoder.width == 0) set_encoder_apart(s, d);
       return s;
     }},
    {"prefix",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       s.order = Order::prefix;
       share_keys(s, d);
       place(s, d);
       if (s.positions == Positions::none) s.positions = Positions::learned;
       vary(s, d, 3);
       return s;
     }},
    {"permuted",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       s.architecture = Architecture::encoder;
       s.order = Order::permuted;
       if (d.chance(0.6)) relate(s, d);
       vary(s, d, 3);
       return s;
     }},
    {"memory",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       s.memory = d.between(1, 20);
       place(s, d);
       s.grid = s.axial_width = 0;
       if (s.longest() == s.context) relate(s, d), s.positions = Positions::none;
       vary(s, d, 2);
       return s;
     }},
    {"recurrent",
     [](Draw& d) {
       ModelSpec s = sized(d);
       add_encoder(s, d);
       const std::vector<Cell> cells = {Cell::none, Cell::gru, Cell::lstm};
       RecurrenceSpec& r = s.recurrence;
       r.encoder = d.of(cells);
       r.decoder = d.of(cells);
       if (r.decoder != Cell::none)
         r.attention = d.of<SourceAttention>({SourceAttention::none, SourceAttention::additive,
                                              SourceAttention::dot, SourceAttention::local});
       r.window = d.between(1, 5);
       r.bidirectional = r.encoder != Cell::none && d.chance(0.5);
       if (r.bidirectional && s.width % 2 == 1) s.width += 1;
       if (s.has_blocks())
         place(s, d);
       else
         s.positions = Positions::none;
       if (s.has_blocks() && s.positions == Positions::none) s.positions = Positions::learned;
       if (d.chance(0.4)) s.source_vocab_size = d.between(1, 40);
       s.source_reversed = d.chance(0.3);
       s.tied = d.chance(0.5);
       return s;
     }},
    {"patterns",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       if (d.chance(0.5)) s.architecture = Architecture::encoder;
       const bool encoder = s.architecture == Architecture::encoder;
       s.attention.patterns = patterns(d, encoder);
       if (encoder) s.attention.global_projections = d.chance(0.3);
       vary(s, d, 2);
       return s;
     }},
    {"latent",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       compress(s, d);
       s.positions = Positions::rotary;
       vary(s, d, 3);
       return s;
     }},
    {"experts",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       if (d.chance(0.3)) s.architecture = Architecture::encoder;
       if (s.architecture == Architecture::decoder && d.chance(0.3)) add_encoder(s, d);
       s.experts = experts(d);
       vary(s, d, 3);
       return s;
     }},
    {"reversible",
     [](Draw& d) {
       ModelSpec s = gpt2(d);
       if (d.chance(0.5)) s.architecture = Architecture::encoder;
       s.branches = Branches::reversible;
       s.tied = false;
       if (d.chance(0.5)) s.attention.shared_query_key = {d.between(0, 1), 1};
       vary(s, d, 3);
       return s;
     }},
    {"image",
     [](Draw& d) {
       ModelSpec s = images(d, d.between(1, 3));
       s.features.bias = d.chance(0.5);
       vary(s, d, 3);
       return s;
     }},
};

}  // namespace

const std::vector<std::string>& shape_families() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const ShapeFamily& f : kFamilies) out.emplace_back(f.name);
    out.emplace_back("clip");
    return out;
  }();
  return names;
}

ModelSpec draw_shape(const std::string& family, Draw& draw) {
  for (const ShapeFamily& f : kFamilies)
    if (f.name == family) {
      ModelSpec s = f.make(draw);
      if (draw.chance(0.15)) vary(s, draw, 2);
      return s;
    }
  fail("--only: no family is called '{}'", family);
}

namespace {

// A tower: its blocks and its output.
ModelSpec tower(Draw& d) {
  ModelSpec s = sized(d);
  s.activation = d.of<Activation>({Activation::gelu_quick, Activation::gelu});
  s.output = Output::embedding;
  return s;
}

}  // namespace

ModelSpec draw_clip_text(Draw& draw) {
  ModelSpec s = tower(draw);
  s.pooling = Pooling::last;
  return s;
}

ModelSpec draw_clip_vision(Draw& draw) {
  ModelSpec s = tower(draw);
  s.architecture = Architecture::encoder;
  FeatureSpec& f = s.features;
  f = {.kind = FeatureSpec::Kind::patches, .channels = draw.between(1, 4), .patch = draw.between(1, 4)};
  f.image = f.patch * draw.between(1, 4);
  f.bias = false;
  s.vocab_size = 1;
  s.context = f.patches() + 1;
  s.embedding_norm = true;
  return s;
}

SpecialIds draw_ids(const ModelSpec& spec, Draw& draw) {
  const auto id = [&] {
    return draw.between(draw.chance(0.3) ? -1 : 0, spec.vocab_size - 1 + draw.chance(0.1));
  };
  SpecialIds ids;
  ids.bos = id();
  ids.pad = id();
  if (draw.chance(0.7)) ids.eos = {draw.between(0, spec.vocab_size)};
  if (draw.chance(0.7)) ids.decoder_start = id();
  return ids;
}

std::string description_of(const ModelSpec& spec) {
  const OrderedJson all = native_family().write_config(spec)["qkv"],
                    usual = native_family().write_config(ModelSpec())["qkv"];
  OrderedJson out;
  for (const auto& [key, value] : all.items())
    if (!usual.contains(key) || usual[key] != value) out[key] = value;
  if (!spec.family.empty()) out["family"] = spec.family;
  return out.dump();
}

}  // namespace qkv::testing
