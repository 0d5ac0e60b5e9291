// Random models of the engine itself: any variation, which no config.json of a family need be able to say.
#include "tests/fuzz/shape_parts.h"
#include "tests/fuzz/shape_tables.h"

namespace qkv::testing {

std::span<const ShapeFamily> own_shapes() {
  static const ShapeFamily families[] = {
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
  return families;
}

}  // namespace qkv::testing
