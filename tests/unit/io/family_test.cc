// Families: the models that each one's config.json can express, and their way to disk and back.
// Covers: qkv/io/family/albert.cc, qkv/io/family/bart.cc, qkv/io/family/bert.cc, qkv/io/family/big_bird.cc
// Covers: qkv/io/family/bloom.cc, qkv/io/family/cohere.cc, qkv/io/family/ctrl.cc
// Covers: qkv/io/family/deberta_v2.cc, qkv/io/family/deepseek_v2.cc, qkv/io/family/deepseek_v3.cc
// Covers: qkv/io/family/deit.cc, qkv/io/family/distilbert.cc, qkv/io/family/electra.cc
// Covers: qkv/io/family/falcon.cc, qkv/io/family/gemma.cc, qkv/io/family/gemma2.cc, qkv/io/family/gpt2.cc
// Covers: qkv/io/family/gpt_neo.cc, qkv/io/family/gpt_neox.cc, qkv/io/family/gptj.cc
// Covers: qkv/io/family/granite.cc, qkv/io/family/llama.cc, qkv/io/family/longformer.cc
// Covers: qkv/io/family/m2m_100.cc, qkv/io/family/marian.cc, qkv/io/family/mbart.cc
// Covers: qkv/io/family/mistral.cc, qkv/io/family/mixtral.cc, qkv/io/family/mpt.cc, qkv/io/family/olmo.cc
// Covers: qkv/io/family/olmo2.cc, qkv/io/family/opt.cc, qkv/io/family/pegasus.cc, qkv/io/family/phi.cc
// Covers: qkv/io/family/phi3.cc, qkv/io/family/qwen2.cc, qkv/io/family/qwen2_moe.cc
// Covers: qkv/io/family/reformer.cc, qkv/io/family/roberta.cc, qkv/io/family/stablelm.cc
// Covers: qkv/io/family/starcoder2.cc, qkv/io/family/switch_transformers.cc, qkv/io/family/t5.cc
// Covers: qkv/io/family/vit.cc, qkv/io/family/whisper.cc, qkv/io/family/xglm.cc, qkv/io/family/xlnet.cc
// Covers: qkv/io/family/qwen3.cc, qkv/io/family/qwen3_moe.cc, qkv/io/family/gemma3_text.cc
// Covers: qkv/io/family/olmo3.cc, qkv/io/family/cohere2.cc, qkv/io/family/exaone4.cc
// Covers: qkv/io/family/smollm3.cc, qkv/io/family/ministral.cc, qkv/io/family/seed_oss.cc
// Covers: qkv/io/family/ernie4_5.cc, qkv/io/family/ernie4_5_moe.cc, qkv/io/family/glm.cc
// Covers: qkv/io/family/glm4.cc, qkv/io/family/glm4_moe.cc, qkv/io/family/granitemoe.cc
// Covers: qkv/io/family/nemotron.cc, qkv/io/family/hunyuan_v1_dense.cc
// Covers: qkv/io/family/*_parts.cc
#include "qkv/io/family/family.h"

#include <cmath>

#include "qkv/base/file.h"
#include "tests/unit/io/model_dir_testing.h"
#include "tests/unit/scratch_dir.h"

namespace qkv {
namespace {

using testing::ScratchDir;

// An encoder-decoder like BART, but with norms before branches.
ModelSpec bart() {
  ModelSpec s = gpt2_spec(13, 8, 12, 2, 3);
  s.architecture = Architecture::encoder_decoder;
  s.encoder_layers = 2;
  s.activation = Activation::gelu;
  s.stacks_apart = s.embedding_norm = s.embedding_scaled = s.unembedding_bias = true;
  return s;
}

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

// An encoder-decoder like M2M-100.
ModelSpec m2m() {
  ModelSpec s = bart();
  s.positions = Positions::sinusoidal_closed;
  s.stacks_apart = s.embedding_norm = s.unembedding_bias = false;
  return s;
}

// An encoder-decoder like Switch Transformers.
ModelSpec switch_transformer() {
  ModelSpec s = bart();
  s.attention.bias = s.attention.out_bias = s.attention.scaled = s.feed_forward_bias = false;
  s.stacks_apart = s.embedding_norm = s.embedding_scaled = s.unembedding_bias = false;
  s.unembedding_scaled = true;
  s.normalization = Normalization::rms;
  s.norm_epsilon = 1e-6F;
  s.positions = Positions::relative;
  s.activation = Activation::relu;
  s.experts = {.count = 3, .chosen = 1, .hidden = s.hidden, .first = 1, .every = 2, .renormalized = false};
  s.experts.capacity = 64;
  return s;
}

// An encoder like ViT, for images of 6 pixels.
ModelSpec image_encoder(int64_t tokens) {
  ModelSpec s = gpt2_spec(tokens, 9 + tokens, 12, 2, 3);
  s.architecture = Architecture::encoder;
  s.features = {.kind = FeatureSpec::Kind::patches, .channels = 3, .patch = 2, .image = 6};
  s.activation = Activation::gelu;
  s.output = Output::sequence_classes;
  s.labels = {"cat", "dog"};
  return s;
}

// Turns a decoder into a sequence classifier, as in the families.
void classify(ModelSpec& s) {
  s.output = Output::sequence_classes;
  s.labels = {"no", "yes", "perhaps"};
  s.pooling = Pooling::last;
  s.tied = true;
  s.unembedding_bias = s.classifier_bias = false;
}

// An encoder like BERT, with a head of this kind in place of the unembedding.
ModelSpec bert_with(Output output) {
  ModelSpec s = bert_spec(13, 8, 12, 2, 3);
  s.head_width = 0;
  s.unembedding_bias = false;
  s.output = output;
  s.pooler = output == Output::sequence_classes;
  if (output != Output::span) s.labels = {"a", "b", "c"};
  return s;
}

struct FamilyCase {
  const char* model_type;
  void (*change)(ModelSpec& s);  // differences of the family from llama()
};

const FamilyCase kFamilies[] = {
    {"vit", [](ModelSpec& s) { s = image_encoder(1); }},
    {"vit",
     [](ModelSpec& s) {
       s = image_encoder(1);
       s.attention.bias = false;
       s.output = Output::embedding;
       s.labels.clear();
       s.pooler = true;
     }},
    {"deit", [](ModelSpec& s) { s = image_encoder(2); }},
    {"deit",
     [](ModelSpec& s) {
       s = image_encoder(2);
       s.features.distilled = true;
     }},
    {"whisper",
     [](ModelSpec& s) {
       s = bart();
       s.embedding_norm = s.embedding_scaled = s.unembedding_bias = false;
       s.encoder.context = 5;
       s.features = {.kind = FeatureSpec::Kind::frames, .channels = 4};
     }},
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
    {"bert",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.positions = Positions::none;
       s.attention.relative = {RelativeAttention::shaw_both, 7};
     }},
    {"longformer",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 4, 3);
       s.attention.patterns = {{.window = 3}, {.window = 2}};
       s.attention.global_projections = true;
     }},
    {"longformer",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.attention.patterns = {{.window = 3, .global = 1}};
       s.attention.global_projections = true;
       s.output = Output::sequence_classes;
       s.labels = {"a", "b"};
       s.pooler = true;
       s.head_width = 0;
       s.unembedding_bias = false;
     }},
    {"deberta-v2",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.norm_epsilon = 1e-7F;
       s.segments = 0;
       s.attention.relative = {RelativeAttention::disentangled, 5};
     }},
    {"deberta-v2",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.positions = Positions::none;
       s.attention.relative = {RelativeAttention::disentangled, 8, 4, true, false, true, true};
       s.output = Output::sequence_classes;
       s.labels = {"a", "b"};
       s.pooler = true;
       s.pooler_activation = Activation::gelu;
       s.head_width = 0;
       s.unembedding_bias = false;
     }},
    {"xlnet",
     [](ModelSpec& s) {
       s = gpt2_spec(13, 8, 12, 2, 3);
       s.architecture = Architecture::encoder;
       s.norm_placement = NormPlacement::post;
       s.positions = Positions::none;
       s.attention.bias = s.attention.out_bias = false;
       s.attention.relative = {.kind = RelativeAttention::transformer_xl, .distance = 6, .segments = true};
       s.unembedding_bias = true;
     }},
    {"xlnet",
     [](ModelSpec& s) {
       s = gpt2_spec(13, 8, 12, 2, 3);
       s.architecture = Architecture::encoder;
       s.norm_placement = NormPlacement::post;
       s.positions = Positions::none;
       s.attention.bias = s.attention.out_bias = false;
       s.attention.relative = {.kind = RelativeAttention::transformer_xl, .segments = true};
       s.output = Output::sequence_classes;
       s.labels = {"a", "b"};
       s.pooler = true;
       s.pooling = Pooling::last;
     }},
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
    {"gpt_neox",
     [](ModelSpec& s) {
       s = gpt2();
       s.branches = Branches::parallel;
       s.positions = Positions::rotary;
       s.attention.rotary.width = 2;
       s.tied = false;
     }},
    {"gptj",
     [](ModelSpec& s) {
       s = gpt2();
       s.attention.bias = s.attention.out_bias = s.tied = false;
       s.branches = Branches::one_norm;
       s.positions = Positions::rotary;
       s.attention.rotary.width = 2;
       s.attention.rotary.layout = RotaryLayout::interleaved;
       s.unembedding_bias = true;
     }},
    {"falcon",
     [](ModelSpec& s) {
       s = gpt2();
       s.attention.kv_heads = 1;
       s.attention.bias = s.attention.out_bias = s.feed_forward_bias = false;
       s.branches = Branches::one_norm;
       s.positions = Positions::rotary;
       s.attention.rotary.width = 4;
     }},
    {"falcon",
     [](ModelSpec& s) {
       s = gpt2_spec(13, 8, 16, 2, 4);
       s.attention.kv_heads = 2;
       s.attention.bias = s.attention.out_bias = s.feed_forward_bias = false;
       s.branches = Branches::parallel;
       s.positions = Positions::rotary;
       s.attention.rotary.width = 4;
     }},
    {"bloom",
     [](ModelSpec& s) {
       s = gpt2();
       s.positions = Positions::alibi;
       s.embedding_norm = true;
     }},
    {"bloom",
     [](ModelSpec& s) {
       s = gpt2();
       s.positions = Positions::alibi;
       s.embedding_norm = true;
       s.norm_placement = NormPlacement::stream;
     }},
    {"mpt",
     [](ModelSpec& s) {
       s = gpt2();
       s.positions = Positions::alibi_evens_first;
       s.normalization = Normalization::layer_scale;
       s.activation = Activation::gelu;
       s.attention.bias = s.attention.out_bias = s.feed_forward_bias = false;
     }},
    {"gpt_neo",
     [](ModelSpec& s) {
       s = gpt2();
       s.attention.bias = s.attention.scaled = false;
       s.attention.patterns = {{}, {.window = 3}};
     }},
    {"opt",
     [](ModelSpec& s) {
       s = gpt2();
       s.activation = Activation::relu;
       s.norm_placement = NormPlacement::post;
       s.embedding_width = 5;
     }},
    {"opt",
     [](ModelSpec& s) {
       s = gpt2();
       s.activation = Activation::relu;
       s.final_norm = false;
     }},
    {"mbart", [](ModelSpec& s) { s = bart(); }},
    {"bart",
     [](ModelSpec& s) {
       s = bart();
       s.norm_placement = NormPlacement::post;
     }},
    {"pegasus",
     [](ModelSpec& s) {
       s = bart();
       s.positions = Positions::sinusoidal_halves;
       s.stacks_apart = s.embedding_norm = false;
     }},
    {"albert",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 4, 3);
       s.embedding_width = s.head_width = 5;
       s.embedding_projected_last = true;
       s.layer_groups = 2;
     }},
    {"electra",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.embedding_width = s.head_width = 5;
       s.embedding_projected_last = true;
     }},
    {"electra",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.output = Output::token_classes;
       s.labels = {"replaced"};
       s.head_width = 0;
       s.unembedding_bias = false;
       s.pooler = true;
       s.pooler_activation = Activation::gelu;
     }},
    {"bert",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.architecture = Architecture::decoder;
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
     }},
    {"ctrl",
     [](ModelSpec& s) {
       s = gpt2();
       s.positions = Positions::sinusoidal_halves;
       s.activation = Activation::relu;
       s.embedding_scaled = s.unembedding_bias = true;
       s.norm_epsilon = 1e-6F;
     }},
    {"xglm",
     [](ModelSpec& s) {
       s = gpt2();
       s.positions = Positions::sinusoidal_closed;
       s.embedding_scaled = true;
     }},
    {"reformer",
     [](ModelSpec& s) {
       s = gpt2();
       s.norm_epsilon = 1e-12F;
       s.activation = Activation::relu;
       s.branches = Branches::reversible;
       s.tied = s.attention.bias = s.attention.out_bias = false;
       s.unembedding_bias = true;
       s.context = 8;
       s.grid = 4;
       s.axial_width = 5;
       s.attention.patterns = {{.block = 4, .neighbours = 1}, {}};
       s.attention.shared_query_key = {0, 1};
       s.attention.hashed_beyond = 8;
     }},
    {"m2m_100", [](ModelSpec& s) { s = m2m(); }},
    {"switch_transformers", [](ModelSpec& s) { s = switch_transformer(); }},
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
    {"falcon",
     [](ModelSpec& s) {
       s = gpt2();
       s.branches = Branches::serial;
       s.positions = Positions::alibi_scaled;
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
    {"roberta",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.family = "roberta";
       s.first_position = 1;
       s.activation = Activation::relu;
       s.head_activation = Activation::gelu;
     }},
    {"electra",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.embedding_width = s.head_width = 5;
       s.embedding_projected_last = true;
       s.activation = Activation::relu;
       s.head_activation = Activation::gelu;
       s.tied = false;
     }},
    {"electra",
     [](ModelSpec& s) {
       s = bert_with(Output::sequence_classes);
       s.family = "electra";
       s.pooler_activation = Activation::gelu;
     }},
    {"electra",
     [](ModelSpec& s) {
       s = bert_with(Output::token_classes);
       s.embedding_width = 5;
       s.embedding_projected_last = true;
     }},
    {"albert",
     [](ModelSpec& s) {
       s = bert_with(Output::sequence_classes);
       s.embedding_width = 5;
       s.embedding_projected_last = true;
       s.layer_groups = 2;
       s.head_dropout = 0.25F;
     }},
    {"albert",
     [](ModelSpec& s) {
       s = bert_with(Output::span);
       s.embedding_width = 5;
       s.embedding_projected_last = true;
       s.layer_groups = 1;
     }},
    {"distilbert",
     [](ModelSpec& s) {
       s = bert_with(Output::sequence_classes);
       s.segments = 0;
       s.pooler_activation = Activation::relu;
       s.head_dropout = 0.25F;
     }},
    {"distilbert",
     [](ModelSpec& s) {
       s = bert_with(Output::token_classes);
       s.segments = 0;
     }},
    {"distilbert",
     [](ModelSpec& s) {
       s = bert_with(Output::span);
       s.segments = 0;
       s.head_dropout = 0.25F;
     }},
    {"bert",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.tied = false;
     }},
    {"mbart",
     [](ModelSpec& s) {
       s = bart();
       s.tied = false;
     }},
    {"m2m_100",
     [](ModelSpec& s) {
       s = m2m();
       s.first_position = 4;
     }},
    {"switch_transformers",
     [](ModelSpec& s) {
       s = switch_transformer();
       s.experts.first = 0;
       s.experts.every = 1;
       s.encoder.expert_first = 1;
       s.encoder.expert_every = 2;
     }},
    {"llama", [](ModelSpec& s) { classify(s); }},
    {"gpt2",
     [](ModelSpec& s) {
       s = gpt2();
       classify(s);
     }},
    {"gpt_neox",
     [](ModelSpec& s) {
       s = gpt2();
       s.branches = Branches::parallel;
       s.positions = Positions::rotary;
       s.attention.rotary.width = 2;
       classify(s);
     }},
    {"big_bird",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.family = "big_bird";
     }},
    {"big_bird",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.family = "big_bird";
       s.embedding_scaled = true;
     }},
    {"big_bird",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.family = "big_bird";
       s.attention.patterns = {{.block = 4, .neighbours = 1, .ends = true, .beyond = 28, .first_block = 2}};
     }},
    {"qkv",
     [](ModelSpec& s) {
       s.norm_placement = NormPlacement::sandwich;
       s.attention.patterns = {{.window = 3}, {}};
       s.attention.query_key_norm = QueryKeyNorm::heads;
       s.residual_multiplier = 0.5F;
       s.attention.rotary.scaling = RotaryScaling::dynamic;
       s.attention.rotary.original_context = 6;
     }},
};

// Each family's directory describes its models completely, and holds the weights bit for bit.
TEST(ModelDir, DecodersOfEveryFamilyComeBack) {
  for (const FamilyCase& c : kFamilies) {
    ModelSpec spec = llama();
    c.change(spec);
    SCOPED_TRACE(c.model_type);
    EXPECT_EQ(family_for(spec).model_type, c.model_type);
    const ScratchDir dir;
    const auto model = drawn(spec);
    save_model(dir.path(), *model);
    const auto loaded = load_model(dir.path(), DType::f32);
    EXPECT_EQ(loaded->spec(), spec);
    expect_same_weights(*model, *loaded);
    const std::string second = dir.path() + "/again";
    std::filesystem::create_directories(second);
    save_model(second, *loaded);
    for (const char* name : {"/config.json", "/model.safetensors"})
      EXPECT_EQ(read_file(dir.path() + name), read_file(second + name)) << name;
  }
}

// Near each family are models that it cannot express. The family chosen for them describes them completely.
TEST(ModelDir, NeighboursOfEveryFamilyComeBack) {
  using Change = void (*)(ModelSpec&);
  const Change changes[] = {
      [](ModelSpec& s) { s.normalization = Normalization::layer; },
      [](ModelSpec& s) { s.normalization = Normalization::layer_scale; },
      [](ModelSpec& s) { s.normalization = Normalization::layer_plain; },
      [](ModelSpec& s) { s.normalization = Normalization::rms; },
      [](ModelSpec& s) { s.normalization = Normalization::rms_plus_one; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::pre; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::post; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::sandwich; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::branch; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::none; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::stream; },
      [](ModelSpec& s) { s.final_norm = false; },
      [](ModelSpec& s) {
        s.norm_placement = NormPlacement::pre;
        s.final_norm = false;
      },
      [](ModelSpec& s) {
        s.layers = 3;
        s.attention.patterns = {{.window = 3}, {.window = 3}, {}};
      },
      [](ModelSpec& s) {
        s.attention.patterns = {{}, {}};
      },
      [](ModelSpec& s) {
        s.attention.patterns = {{.window = 3}, {.window = 4}};
      },
      [](ModelSpec& s) { s.branches = Branches::serial; },
      [](ModelSpec& s) { s.branches = Branches::parallel; },
      [](ModelSpec& s) { s.branches = Branches::one_norm; },
      [](ModelSpec& s) { s.attention.bias = !s.attention.bias; },
      [](ModelSpec& s) { s.attention.out_bias = !s.attention.out_bias; },
      [](ModelSpec& s) { s.feed_forward_bias = !s.feed_forward_bias; },
      [](ModelSpec& s) { s.unembedding_bias = !s.unembedding_bias; },
      [](ModelSpec& s) { s.tied = !s.tied; },
      [](ModelSpec& s) { s.gated = !s.gated; },
      [](ModelSpec& s) { s.hidden = 7; },
      [](ModelSpec& s) { s.activation = Activation::relu; },
      [](ModelSpec& s) { s.activation = Activation::tanh; },
      [](ModelSpec& s) { s.norm_epsilon = 1e-3F; },
      [](ModelSpec& s) { s.attention.kv_heads = 1; },
      [](ModelSpec& s) { s.attention.d_qk = 6; },
      [](ModelSpec& s) { s.attention.d_vo = 6; },
      [](ModelSpec& s) { s.attention.scale = 0.5F; },
      [](ModelSpec& s) { s.attention.scaled = !s.attention.scaled; },
      [](ModelSpec& s) { s.attention.scaled_by_layer = true; },
      [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::heads; },
      [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::whole; },
      [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::heads_plus_one; },
      [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::heads_rotated; },
      [](ModelSpec& s) { s.normalization = Normalization::layer_plus_one; },
      [](ModelSpec& s) {
        BlockSpec other = s;
        other.attention.patterns = {{.window = 3}};
        s.kinds = {{"some", other}};
        s.layer_kinds = {"default", "some"};
      },
      [](ModelSpec& s) {
        BlockSpec other = s;
        other.hidden = 9;
        s.kinds = {{"local", other}};
        s.layer_kinds = {"local", "default"};
      },
      [](ModelSpec& s) { s.attention.patterns = {{.window = 3}}; },
      [](ModelSpec& s) { s.attention.patterns = {{.window = 3, .dilation = 2}}; },
      [](ModelSpec& s) {
        s.attention.patterns = {{.stride = 3}, {.block = 4, .neighbours = 1, .ends = true, .random = 2}};
      },
      [](ModelSpec& s) {
        s.attention.patterns = {{.window = 3}, {}};
      },
      [](ModelSpec& s) { s.attention.patterns = {}; },
      [](ModelSpec& s) { s.attention.dropout = 0.125F; },
      [](ModelSpec& s) { s.residual_dropout = 0.125F; },
      [](ModelSpec& s) { s.embedding_dropout = 0.125F; },
      [](ModelSpec& s) { s.embedding_scaled = !s.embedding_scaled; },
      [](ModelSpec& s) { s.embedding_norm = !s.embedding_norm; },
      [](ModelSpec& s) { s.embedding_multiplier = 2; },
      [](ModelSpec& s) { s.residual_multiplier = 0.5F; },
      [](ModelSpec& s) { s.logit_multiplier = 2; },
      [](ModelSpec& s) { s.embedding_width = 6; },
      [](ModelSpec& s) { s.layer_groups = 1; },
      [](ModelSpec& s) { s.segments = 2; },
      [](ModelSpec& s) {
        s.positions = Positions::alibi;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) {
        s.positions = Positions::learned;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) {
        s.positions = Positions::toeplitz;
        s.relative_distance = 3;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) {
        s.positions = Positions::sinusoidal;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) {
        s.positions = Positions::rotary;
        s.attention.rotary.width = 2;
      },
      [](ModelSpec& s) { s.attention.rotary.base = 5000; },
      [](ModelSpec& s) { s.attention.rotary.layout = RotaryLayout::interleaved; },
      [](ModelSpec& s) {
        s.attention.rotary.scaling = RotaryScaling::linear;
        s.attention.rotary.factor = 3;
      },
      [](ModelSpec& s) { s.attention.cap = 5; },
      [](ModelSpec& s) { s.attention.sinks = true; },
      [](ModelSpec& s) { s.logit_cap = 5; },
      [](ModelSpec& s) { s.hidden_layers = 2; },
      [](ModelSpec& s) { s.activation = Activation::gelu_quick; },
      [](ModelSpec& s) { s.activation = Activation::relu_squared; },
      [](ModelSpec& s) { s.experts = {.count = 4, .chosen = 3, .hidden = 6}; },
      [](ModelSpec& s) { s.experts.chosen = 1; },
      [](ModelSpec& s) { s.experts.first = 1; },
      [](ModelSpec& s) { s.experts.every = 2; },
      [](ModelSpec& s) { s.experts.renormalized = !s.experts.renormalized; },
      [](ModelSpec& s) { s.experts.scale = 3; },
      [](ModelSpec& s) { s.experts.score = RouterScore::sigmoid; },
      [](ModelSpec& s) { s.experts.choice_bias = !s.experts.choice_bias; },
      [](ModelSpec& s) { s.experts.groups = s.experts.count; },
      [](ModelSpec& s) { s.experts.shared_hidden = 5; },
      [](ModelSpec& s) { s.experts.capacity = 7; },
      [](ModelSpec& s) {
        s.mixer = LatentMixer{6, 5};
      },
      [](ModelSpec& s) {
        s.positions = Positions::sinusoidal_closed;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) { s.order = Order::prefix; },
      [](ModelSpec& s) { s.order = Order::permuted; },
      [](ModelSpec& s) { s.normalization = Normalization::scale; },
      [](ModelSpec& s) { s.normalization = Normalization::capsule; },
      [](ModelSpec& s) { s.normalization = Normalization::batch; },
      [](ModelSpec& s) { s.embedding_unit = true; },
      [](ModelSpec& s) { s.grid = 2; },
      [](ModelSpec& s) { s.axial_width = 3; },
      [](ModelSpec& s) { s.branches = Branches::reversible; },
      [](ModelSpec& s) { s.attention.shared_query_key = {1}; },
      [](ModelSpec& s) { s.attention.hashed_beyond = 7; },
      [](ModelSpec& s) { s.attention.clip = 0.5F; },
      [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::layer; },
      [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::layer_heads; },
      [](ModelSpec& s) { s.head_activation = Activation::relu; },
      [](ModelSpec& s) { s.first_position = 3; },
      [](ModelSpec& s) { s.classifier_bias = !s.classifier_bias; },
      [](ModelSpec& s) {
        s.positions = Positions::alibi_scaled;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) {
        RotarySpec& r = s.attention.rotary;
        r.scaling = RotaryScaling::longrope;
        r.short_factors.assign(static_cast<size_t>(r.width / 2), 1.25);
        r.long_factors.assign(static_cast<size_t>(r.width / 2), 2);
        r.original_context = 5;
      },
      [](ModelSpec& s) { s.encoder.expert_every = s.experts.every + 1; },
      [](ModelSpec& s) { s.features.bias = !s.features.bias; },
      [](ModelSpec& s) { s.features.channels = 2; },
      [](ModelSpec& s) { s.features.distilled = !s.features.distilled; },
      [](ModelSpec& s) { s.encoder.context = 6; },
      [](ModelSpec& s) { s.memory = 5; },
      [](ModelSpec& s) {
        s.attention.head_sizes.assign(static_cast<size_t>(s.attention.heads), s.attention.d_qk);
      },
      [](ModelSpec& s) { s.encoder.heads = 2; },
      [](ModelSpec& s) { s.encoder.hidden = 9; },
      [](ModelSpec& s) {
        s.encoder = {8, 4, 0};
      },
      [](ModelSpec& s) { s.attention.global_projections = !s.attention.global_projections; },
      [](ModelSpec& s) {
        s.attention.relative = {RelativeAttention::shaw, 3};
      },
      [](ModelSpec& s) { s.attention.relative = {RelativeAttention::transformer_xl}; },
      [](ModelSpec& s) { s.attention.relative.distance = 7; },
      [](ModelSpec& s) { s.attention.relative.by_content = false; },
      [](ModelSpec& s) { s.attention.relative.by_position = false; },
      [](ModelSpec& s) {
        s.attention.relative.shared_projections = !s.attention.relative.shared_projections;
      },
      [](ModelSpec& s) { s.attention.relative.normed = !s.attention.relative.normed; },
      [](ModelSpec& s) { s.attention.relative.segments = !s.attention.relative.segments; },
      [](ModelSpec& s) {
        s.output = Output::token_classes;
        s.labels = {"a", "b"};
        s.tied = true;
      },
  };
  int tried = 0;
  for (const FamilyCase& c : kFamilies)
    for (const Change& change : changes) {
      ModelSpec spec = llama();
      c.change(spec);
      change(spec);
      try {
        check_spec(spec);
      } catch (const Error&) {
        continue;
      }
      ++tried;
      SCOPED_TRACE(fmt::format("{}, change {}, saved as {}", c.model_type, &change - changes,
                               family_for(spec).model_type));
      const ScratchDir dir;
      const auto model = drawn(spec);
      save_model(dir.path(), *model);
      const auto loaded = load_model(dir.path(), DType::f32);
      ModelSpec read = loaded->spec();
      read.family = spec.family;
      if (spec.positions != Positions::rotary) spec.attention.rotary = read.attention.rotary;
      EXPECT_EQ(read, spec);
      expect_same_weights(*model, *loaded);
    }
  EXPECT_GT(tried, 800);
}

}  // namespace
}  // namespace qkv
