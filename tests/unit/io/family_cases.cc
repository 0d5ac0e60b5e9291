// Models that families other than Llama's relatives describe.
#include "tests/unit/io/family_cases.h"

#include <cmath>

#include "tests/unit/io/model_dir_testing.h"

namespace qkv {

void classify(ModelSpec& s) {
  s.output = Output::sequence_classes;
  s.labels = {"no", "yes", "perhaps"};
  s.pooling = Pooling::last;
  s.tied = true;
  s.unembedding_bias = s.classifier_bias = false;
}

namespace {

// An encoder-decoder like BART, but with norms before branches.
ModelSpec bart() {
  ModelSpec s = gpt2_spec(13, 8, 12, 2, 3);
  s.architecture = Architecture::encoder_decoder;
  s.encoder_layers = 2;
  s.activation = Activation::gelu;
  s.stacks_apart = s.embedding_norm = s.embedding_scaled = s.unembedding_bias = true;
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

// A Perceiver over bytes.
ModelSpec perceiver() {
  ModelSpec s = gpt2_spec(13, 8, 12, 2, 3);
  s.width = 16;
  s.architecture = Architecture::encoder;
  s.activation = Activation::gelu;
  s.final_norm = false;
  s.unembedding_bias = true;
  s.attention.d_qk = 5;
  s.attention.d_vo = 4;
  s.hidden = 24;
  s.latents = {.count = 3, .width = 12, .repeats = 2};
  s.latents.in = {.heads = 1, .d_qk = 15, .d_vo = 12, .hidden = 36, .residual = false};
  s.latents.out = {.heads = 8, .d_qk = 32, .d_vo = 2, .hidden = 16, .residual = false};
  return s;
}

// An encoder-decoder of Gemma 2's blocks.
ModelSpec t5gemma() {
  ModelSpec s = llama();
  s.architecture = Architecture::encoder_decoder;
  s.encoder_layers = 3;
  s.source_vocab_size = s.vocab_size;
  s.normalization = Normalization::rms_plus_one;
  s.norm_placement = NormPlacement::sandwich;
  s.embedding_scaled = s.tied = true;
  s.activation = Activation::gelu_tanh;
  s.attention.cap = 50;
  s.logit_cap = 30;
  s.attention.patterns = {{.window = 5}, {}};
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

// An encoder like Reformer, with layers in a ring and layers that hash.
ModelSpec reformer_encoder(Output output) {
  ModelSpec s = gpt2();
  s.architecture = Architecture::encoder;
  s.norm_epsilon = 1e-12F;
  s.activation = Activation::relu;
  s.branches = Branches::reversible;
  s.attention.bias = s.attention.out_bias = false;
  s.attention.shared_query_key = {0, 1};
  s.attention.hashing = {.chunk = 4, .rounds = 2, .buckets = {2}};
  s.attention.ring = {.chunk = 3, .before = 2, .after = 1};
  s.output = output;
  s.tied = output != Output::tokens;
  s.unembedding_bias = output == Output::tokens;
  s.pooler = output == Output::sequence_classes;
  if (s.pooler) s.labels = {"a", "b", "c"};
  return s;
}

const FamilyCase kCases[] = {
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
    {"deberta",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.segments = 0;
       s.positions = Positions::none;
       s.attention.relative = {RelativeAttention::disentangled, 8};
       s.attention.key_bias = false;
     }},
    {"modernbert",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 4, 3);
       s.segments = 0;
       s.positions = Positions::rotary;
       s.attention.rotary.width = 4;
       s.attention.rotary.base = 160000;
       s.attention.bias = s.attention.out_bias = s.feed_forward_bias = s.head_bias = false;
       s.gated = true;
       s.norm_placement = NormPlacement::pre;
       s.normalization = Normalization::layer_scale;
       s.norm_epsilon = 1e-5F;
       BlockSpec first = s;
       first.mixer_norm = false;
       const BlockSpec global = s;
       s.attention.rotary.base = 10000;
       s.attention.patterns = {{.window = 3}};
       s.kinds = {{"first", first}, {"global", global}};
       s.layer_kinds = {"first", "default", "default", "global"};
     }},
    {"modernbert",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 1, 3);
       s.segments = 0;
       s.positions = Positions::rotary;
       s.attention.rotary.width = 4;
       s.gated = true;
       s.norm_placement = NormPlacement::pre;
       BlockSpec first = s;
       first.mixer_norm = false;
       s.kinds = {{"first", first}};
       s.layer_kinds = {"first"};
       s.output = Output::sequence_classes;
       s.labels = {"a", "b"};
       s.pooling = Pooling::mean;
       s.pooler = s.pooler_norm = true;
       s.pooler_activation = Activation::relu;
       s.head_width = 0;
       s.unembedding_bias = false;
     }},
    {"mpnet",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.segments = 0;
       s.distance_bias = Positions::relative;
     }},
    {"roformer",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.positions = Positions::rotary;
       s.attention.rotary.width = 4;
       s.attention.rotary.layout = RotaryLayout::interleaved;
       s.attention.rotary.values = true;
       s.embedding_width = s.head_width = 6;
       s.embedding_projected_last = true;
     }},
    {"umt5",
     [](ModelSpec& s) {
       s = switch_transformer();
       s.experts = {};
       s.relative_by_layer = true;
     }},
    {"t5gemma",
     [](ModelSpec& s) {
       s = t5gemma();
       BlockSpec e = s;
       e.attention.heads = e.attention.kv_heads = 2;
       e.attention.d_qk = e.attention.d_vo = e.attention.rotary.width = 6;
       e.attention.rotary.base = 500;
       e.hidden = 10;
       s.encoder.width = 10;
       s.kinds = {{"encoder", e}};
       s.encoder_layer_kinds = {"encoder"};
     }},
    {"t5gemma", [](ModelSpec& s) { s = t5gemma(); }},
    {"led",
     [](ModelSpec& s) {
       s = bart();
       s.embedding_scaled = false;
       s.norm_placement = NormPlacement::post;
       BlockSpec e = s;
       e.attention.heads = e.attention.kv_heads = 4;
       e.attention.d_qk = e.attention.d_vo = 3;
       e.hidden = 10;
       e.attention.patterns = {{.window = 3}, {.window = 2}};
       e.attention.global_projections = true;
       s.kinds = {{"encoder", e}};
       s.encoder_layer_kinds = {"encoder"};
       s.encoder.context = 11;
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
    {"reformer", [](ModelSpec& s) { s = reformer_encoder(Output::tokens); }},
    {"reformer", [](ModelSpec& s) { s = reformer_encoder(Output::sequence_classes); }},
    {"reformer",
     [](ModelSpec& s) {
       s = reformer_encoder(Output::span);
       s.attention.shared_query_key.clear();
       s.attention.hashing = {};
     }},
    {"reformer", [](ModelSpec& s) { s = reformer_encoder(Output::embedding); }},
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
       s.attention.hashing = {.chunk = 4, .before = 2, .rounds = 2, .buckets = {2, 4}};
     }},
    {"perceiver", [](ModelSpec& s) { s = perceiver(); }},
    {"perceiver",
     [](ModelSpec& s) {
       s = perceiver();
       classify(s);
       s.pooling = Pooling::first;
       s.classifier_bias = true;
       s.latents.out = {.heads = 1, .d_qk = 12, .d_vo = 12, .hidden = 12, .residual = true};
       s.latents.in.residual = true;
     }},
    {"m2m_100", [](ModelSpec& s) { s = m2m(); }},
    {"switch_transformers", [](ModelSpec& s) { s = switch_transformer(); }},
    {"falcon",
     [](ModelSpec& s) {
       s = gpt2();
       s.branches = Branches::serial;
       s.positions = Positions::alibi_scaled;
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

}  // namespace

std::span<const FamilyCase> family_cases() {
  return kCases;
}

}  // namespace qkv
