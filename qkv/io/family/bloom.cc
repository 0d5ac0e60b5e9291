// BLOOM: Hugging Face's BloomForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/gpt_parts.h"

namespace qkv {
namespace {

ModelSpec read_bloom(const JsonField& c) {
  // Older files have other names.
  const auto name = [&](const char* usual, const char* other) { return c.find(other) ? other : usual; };
  ModelSpec s = read_gpt_like(c, {name("hidden_size", "n_embed"), name("n_layer", "num_hidden_layers"),
                                  name("n_head", "num_attention_heads")});
  if (c.boolean_or("apply_residual_connection_post_layernorm", false))
    s.norm_placement = NormPlacement::stream;
  s.context = c.integer_or("seq_length", 2048, 1, kMost);  // not needed by ALiBi
  s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-5F);
  s.positions = Positions::alibi;
  s.embedding_norm = true;
  read_dropouts(c, kHiddenDropouts, 0, s);
  return s;
}

OrderedJson write_bloom(const ModelSpec& s) {
  OrderedJson c = write_gpt_like(s, "bloom", "BloomForCausalLM", {"hidden_size", "n_layer", "n_head"});
  c["seq_length"] = s.context;
  c["layer_norm_epsilon"] = decimal(s.norm_epsilon);
  write_dropouts(s, kHiddenDropouts, c);
  if (s.norm_placement == NormPlacement::stream) c["apply_residual_connection_post_layernorm"] = true;
  return c;
}

std::vector<WeightName> bloom_weights(const ModelSpec& s) {
  GptBlockNames block = megatron_block("self_attention");
  block.grouped = true;
  WeightNames n =
      weights_named_as_gpt(s, {.embedding = "transformer.word_embeddings.weight", .block = block});
  n.tensor("embedding.norm.gamma", "transformer.word_embeddings_layernorm.weight");
  n.tensor("embedding.norm.beta", "transformer.word_embeddings_layernorm.bias");
  return n.all;
}

}  // namespace

const Family& bloom_family() {
  static const Family family = gpt_like("bloom", "BloomForCausalLM", read_bloom, write_bloom, bloom_weights);
  return family;
}

}  // namespace qkv
