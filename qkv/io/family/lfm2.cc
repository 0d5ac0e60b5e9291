// LFM2: Hugging Face's Lfm2ForCausalLM, layers of short convolutions and of attention.

#include <algorithm>

#include "qkv/base/json_value.h"
#include "qkv/io/family/hybrid_parts.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {
namespace {

// The feed-forward network's width, as the authors' code computes it.
int64_t read_hidden(const JsonField& c) {
  const auto own = c.find("block_ff_dim");
  auto hidden = own ? own->integer(1, kMost) : c.integer_or("intermediate_size", 12288, 1, kMost);
  if (!c.boolean_or("block_auto_adjust_ff_dim", true)) return hidden;
  hidden = 2 * hidden / 3;
  const auto multiplier = c.find("block_ffn_dim_multiplier");
  const bool none = multiplier && multiplier->json().is_null();
  const auto of = c.integer_or("block_multiple_of", 256, 1, kMost);
  if (none) return hidden;
  hidden = static_cast<int64_t>((multiplier ? multiplier->number() : 1) * static_cast<double>(hidden));
  return of * ((hidden + of - 1) / of);
}

ModelSpec read_lfm2(const JsonField& c) {
  ModelSpec s;
  s.vocab_size = c["vocab_size"].integer(0, kMost);
  s.context = c.integer_or("max_position_embeddings", 128000, 1, kMost);
  s.width = c["hidden_size"].integer(0, kMost);
  s.layers = c["num_hidden_layers"].integer(0, kMost);
  s.hidden = read_hidden(c);
  AttentionSpec& a = s.attention;
  a.heads = c.integer_or("num_attention_heads", 32, 1, kMost);
  a.kv_heads = read_kv_heads(c, a.heads, 8);
  a.d_qk = a.d_vo = s.width / a.heads;
  a.bias = a.out_bias = false;
  a.query_key_norm = QueryKeyNorm::heads;
  s.feed_forward_bias = false;
  s.activation = Activation::silu;
  s.gated = true;
  s.normalization = Normalization::rms;
  s.norm_epsilon = c.number_or("norm_eps", 1e-5F);
  s.positions = Positions::rotary;
  a.rotary.width = a.d_qk;
  a.rotary.base = c.number_or(c.find("theta") ? "theta" : "rope_theta", 1e6);
  read_rotary_scaling(c, s.context, a.rotary);
  s.tied = c.boolean_or(c.find("tie_embedding") ? "tie_embedding" : "tie_word_embeddings", true);
  s.init_std = c.number_or("initializer_range", 0.02F);
  ConvolutionMixer m;
  m.kernel = c.integer_or("conv_L_cache", 3, 2, kMost);
  m.bias = c.boolean_or("conv_bias", false);
  std::vector<int64_t> attend;
  const auto listed = c.find("full_attn_idxs");
  if (listed && !listed->json().is_null()) attend = listed->integers(0, kMost);
  std::vector<std::string> layers;
  for (const bool attention : read_layer_types(c, s.layers, "full_attention", "conv", [&](int64_t l) {
         return !listed || listed->json().is_null() || std::ranges::find(attend, l) != attend.end();
       }))
    layers.push_back(attention ? kDefaultKind : "convolution");
  give_blocks(s, layers, {{"convolution", with_mixer(s, m)}});
  return s;
}

OrderedJson write_lfm2(const ModelSpec& s) {
  const ModelSpec all = as_if_all_attend(s);
  const AttentionSpec& a = all.attention;
  OrderedJson c = {{"model_type", "lfm2"},
                   {"architectures", {"Lfm2ForCausalLM"}},
                   {"vocab_size", s.vocab_size},
                   {"max_position_embeddings", s.context},
                   {"hidden_size", s.width},
                   {"num_hidden_layers", s.layers},
                   {"intermediate_size", s.hidden},
                   {"block_auto_adjust_ff_dim", false},
                   {"num_attention_heads", a.heads},
                   {"num_key_value_heads", a.kv_heads},
                   {"norm_eps", decimal(s.norm_epsilon)},
                   {"rope_theta", a.rotary.base},
                   {"tie_embedding", s.tied},
                   {"tie_word_embeddings", s.tied},
                   {"initializer_range", decimal(s.init_std)},
                   {"layer_types", write_layer_types(s, "full_attention", "conv")},
                   {"torch_dtype", "float32"},
                   {"use_cache", true}};
  write_rotary_scaling(a.rotary, c);
  if (const ConvolutionMixer* m = first_mixer<ConvolutionMixer>(s)) {
    c["conv_L_cache"] = m->kernel;
    c["conv_bias"] = m->bias;
  }
  return c;
}

}  // namespace

const Family& lfm2_family() {
  static const Family family = [] {
    Family f = llama_like("lfm2", {"Lfm2ForCausalLM", ""}, read_lfm2, write_lfm2, [](const ModelSpec& s) {
      return weights_named_as_llama(s, {.query_key_norms = {"q_layernorm", "k_layernorm"},
                                        .out = "out_proj",
                                        .attention_norm = "operator_norm",
                                        .feed_forward_norm = "ffn_norm",
                                        .up = {"w1", "w3"},
                                        .down = "w2",
                                        .network = "feed_forward",
                                        .last_norm = "model.embedding_norm",
                                        .mixer = [](WeightNames& n, const ModelSpec& spec, const BlockSpec& b,
                                                    const std::string& e, const std::string& file) {
                                          add_convolution(n, *b.mixer.get_if<ConvolutionMixer>(), spec.width,
                                                          e, file + "conv.");
                                        }});
    });
    f.expresses = is_hybrid<ConvolutionMixer>;
    return f;
  }();
  return family;
}

}  // namespace qkv
