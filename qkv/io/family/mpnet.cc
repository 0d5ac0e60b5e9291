// MPNet: Hugging Face's MPNetForMaskedLM and so on.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bert_parts.h"

namespace qkv {
namespace {

constexpr int64_t kUnusedByMpnet = 2;  // positions count from 2, whatever the padding token
constexpr int64_t kBuckets = 32;       // whatever the config says, and 128 as the longest distance

ModelSpec read_mpnet(const JsonField& c) {
  ModelSpec s = read_bert_like(c, "MPNet", kUnusedByMpnet);
  set_head_activation(s, Activation::gelu);
  s.segments = 0;
  s.distance_bias = Positions::relative;
  s.relative_buckets = kBuckets;
  check(c.integer_or("relative_attention_num_buckets", kBuckets, 1, kMost) == kBuckets,
        "{}: relative_attention_num_buckets: only {} is supported", c.place(), kBuckets);
  return s;
}

OrderedJson write_mpnet(const ModelSpec& s) {
  OrderedJson c = write_bert_like(s, "mpnet", "MPNet", kUnusedByMpnet);
  c["pad_token_id"] = 1;
  for (const char* key : {"type_vocab_size", "position_embedding_type"}) c.erase(key);
  c["relative_attention_num_buckets"] = s.relative_buckets;
  return c;
}

std::vector<WeightName> mpnet_weights(const ModelSpec& s) {
  WeightNames n;
  add_bert_embeddings(n, s, "mpnet", kUnusedByMpnet);
  n.tensor("encoder.distance", "mpnet.encoder.relative_attention_bias.weight");
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string block = fmt::format("encoder.block.{}.", l),
                      file = fmt::format("mpnet.encoder.layer.{}.", l);
    add_bert_qkv(n, s, block, file + "attention.attn.", {"q", "k", "v"});
    add_bert_outputs(n, block, file, {"attention.attn.o", "attention.LayerNorm"});
  }
  add_roberta_heads(n, s, "mpnet");
  return n.all;
}

}  // namespace

const Family& mpnet_family() {
  static const Family family = {"mpnet",
                                read_mpnet,
                                write_mpnet,
                                [](const ModelSpec& s) { return s.distance_bias == Positions::relative && is_bert(s); },
                                mpnet_weights,
                                "mpnet.",
                                is_extra_in_bert};
  return family;
}

}  // namespace qkv
