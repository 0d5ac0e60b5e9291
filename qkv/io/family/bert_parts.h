// Shared parts of BERT and its relatives: encoders with post-norm blocks, and their heads.
#pragma once

#include "qkv/io/family/family_parts.h"

namespace qkv {

// Reads and writes the fields that their config.json files share; `base`: prefix of the class names.
// `unused`: positions that no token has.
ModelSpec read_bert_like(const JsonField& config, const std::string& base, int64_t unused);
OrderedJson write_bert_like(const ModelSpec& spec, const char* type, const std::string& base, int64_t unused);
// True if those fields describe the whole spec, except for positions, patterns and segments.
bool is_bert(const ModelSpec& spec);
// RoBERTa counts positions from pad_token_id + 1, and its head always has GELU, whatever its blocks have.
ModelSpec read_roberta_like(const JsonField& config, const std::string& base);
OrderedJson write_roberta_like(const ModelSpec& spec, const char* type, const std::string& base);

// Sets the activation of the head before an unembedding, whatever the blocks have.
void set_head_activation(ModelSpec& spec, Activation activation);
// Throws Error for heads other than an unembedding, classes of a sequence or of tokens, and the ends of an
// answer.
void expect_plain_head(const ModelSpec& spec, const JsonField& config, const char* base);
// True for BERT's next-sentence classifier, which has other tensor names.
bool tells_next(const ModelSpec& spec);

// The tensors of a block's queries, keys and values.
struct QkvNames {
  const char *query = "query", *key = "key", *value = "value";
};
// The tensors of its attention's output, and of the norm after it.
struct OutputNames {
  const char *out = "attention.output.dense", *norm = "attention.output.LayerNorm";
};
// `base`: the tensors' names begin with it and a dot.
void add_bert_embeddings(WeightNames& names, const ModelSpec& spec, const std::string& base,
                         int64_t unused = 0);
// The fused projection; in the file its parts have these names after `self`.
void add_bert_qkv(WeightNames& names, const ModelSpec& spec, const std::string& block,
                  const std::string& self, const QkvNames& parts = {});
// The rest of a block: the attention's output, the feed-forward network and their norms.
void add_bert_outputs(WeightNames& names, const std::string& block, const std::string& file,
                      const OutputNames& outputs = {});
// The embeddings and blocks of a model.
WeightNames bert_stack(const ModelSpec& spec, const std::string& base, int64_t unused = 0);

inline constexpr MaskedHeadNames kBertHead = {"cls.predictions.transform.dense",
                                              "cls.predictions.transform.LayerNorm", "cls.predictions.bias",
                                              "cls.predictions.decoder.weight"};
inline constexpr MaskedHeadNames kRobertaHead = {"lm_head.dense", "lm_head.layer_norm", "lm_head.bias",
                                                 "lm_head.decoder.weight"};

// BERT's tensors, with all of its heads.
std::vector<WeightName> weights_named_as_bert(const ModelSpec& spec);
// RoBERTa's classifier of sequences: a layer and a projection. For choices it is BERT's, whose layer has the
// name `of_choices`.
void add_classification_head(WeightNames& names, const ModelSpec& spec, const std::string& of_choices);
// All heads of RoBERTa; `base`: as above.
void add_roberta_heads(WeightNames& names, const ModelSpec& spec, const std::string& base);
// The classifier of all other classes, and of the ends of an answer.
void add_classifier(WeightNames& names, const ModelSpec& spec);

// True for the position ids 0, 1, ... that old files contain, and for second copies of tied weights.
bool is_extra_in_bert(const ModelSpec& spec, const std::string& name);

}  // namespace qkv
