// Random encoders: BERT and its relatives, XLNet, and readers of images.
#include "tests/fuzz/shape_parts.h"
#include "tests/fuzz/shape_tables.h"

namespace qkv::testing {

namespace {

// Rotary positions need heads of an even width.
void make_heads_even(ModelSpec& s) {
  if (s.attention.d_qk % 2 == 0) return;
  s.attention.d_qk = s.attention.d_vo = s.attention.d_qk + 1;
  s.width = s.head_width = s.attention.heads * s.attention.d_qk;
}

// DeBERTa's attention, with or without positions of tokens and segments.
void disentangle(ModelSpec& s, Draw& d) {
  s.segments = d.chance(0.5) ? 0 : 2;
  if (d.chance(0.5)) s.positions = Positions::none;
  s.attention.relative = {RelativeAttention::disentangled, d.between(2, 9)};
  RelativeSpec& r = s.attention.relative;
  r.by_content = d.chance(0.7);
  r.by_position = !r.by_content || d.chance(0.5);
}

}  // namespace

std::span<const ShapeFamily> encoder_shapes() {
  static const ShapeFamily families[] = {
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
               d.of<RelativeAttention>({RelativeAttention::shaw, RelativeAttention::shaw_both}),
               s.context - 1};
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
      {"perceiver",
       [](Draw& d) {
         ModelSpec s = gpt2(d);
         s.architecture = Architecture::encoder;
         s.activation = Activation::gelu;
         s.final_norm = false;
         s.width = 8 * d.between(1, 3);
         s.attention.kv_heads = s.attention.heads;
         s.attention.d_qk = d.between(1, 6);
         s.attention.d_vo = d.between(1, 6);
         LatentSpec& l = s.latents;
         l.count = d.between(1, 7);
         l.width = d.between(1, 12);
         l.repeats = d.between(1, 3);
         s.hidden = l.width * d.between(1, 3);
         l.in = {.heads = s.attention.heads,
                 .d_qk = s.attention.d_qk,
                 .d_vo = s.attention.d_vo,
                 .hidden = l.width * d.between(1, 3),
                 .residual = d.chance(0.5)};
         l.out = {.heads = 8, .d_qk = 32, .d_vo = s.width / 8, .hidden = s.width, .residual = false};
         end_encoder(s, d, {Output::tokens, Output::sequence_classes});
         s.problem = Problem::single_label;
         s.pooler = false;
         if (s.output == Output::tokens) {
           s.tied = s.unembedding_bias = true;
         } else {
           if (s.labels.empty()) s.labels = {"a", "b"};
           l.out = {.heads = 1, .d_qk = l.width, .d_vo = l.width, .hidden = l.width, .residual = true};
         }
         return s;
       }},
      {"reformer",
       [](Draw& d) {
         ModelSpec s = gpt2(d);
         s.architecture = Architecture::encoder;
         s.norm_epsilon = 1e-12F;
         s.activation = Activation::relu;
         s.branches = Branches::reversible;
         s.attention.bias = s.attention.out_bias = false;
         s.grid = d.between(1, 5);
         s.context = s.grid * d.between(1, 5);
         s.axial_width = d.between(1, s.width - 1);
         s.attention.ring = {
             .chunk = d.between(1, s.context), .before = d.between(0, 2), .after = d.between(0, 2)};
         if (d.chance(0.6)) {
           s.attention.shared_query_key = {0, 1};
           s.attention.hashing = hashes(d, s.context);
         }
         end_encoder(s, d, {Output::tokens, Output::sequence_classes, Output::span});
         s.pooler = s.output == Output::sequence_classes;
         s.tied = s.output != Output::tokens;
         s.unembedding_bias = s.output == Output::tokens;
         return s;
       }},
      {"roformer",
       [](Draw& d) {
         ModelSpec s = bert(d);
         make_heads_even(s);
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
         disentangle(s, d);
         s.attention.key_bias = false;
         return s;
       }},
      {"modernbert",
       [](Draw& d) {
         ModelSpec s = bert(d);
         make_heads_even(s);
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
         disentangle(s, d);
         RelativeSpec& r = s.attention.relative;
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
  };
  return families;
}

}  // namespace qkv::testing
