// Random decoders: GPT-2 and others that are no relatives of Llama.
#include "tests/fuzz/shape_parts.h"
#include "tests/fuzz/shape_tables.h"

namespace qkv::testing {

std::span<const ShapeFamily> decoder_shapes() {
  static const ShapeFamily families[] = {
      {"gpt2",
       [](Draw& d) {
         ModelSpec s = gpt2(d);
         s.attention.scaled_by_layer = d.chance(0.3);
         end_decoder(s, d);
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
         s.attention.hashing = hashes(d, s.context);
         return s;
       }},
  };
  return families;
}

}  // namespace qkv::testing
