// Attention of a model to its source during generation.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "qkv/models/transformer.h"

namespace qkv {

// Records in each pass the probabilities of the first head of the decoder's last cross-attention. OpenNMT
// and CTranslate2 use the same head as an alignment.
class AttentionRows : public Probe {
 public:
  using Rows = std::vector<std::vector<float>>;  // [tokens, source tokens]

  // Throws Error if the model has no cross-attention.
  explicit AttentionRows(const ModelSpec& spec);

  bool wants(std::string_view name) const override { return name == name_; }
  void visit_head(std::string_view name, int64_t sequence, int64_t head, Tensor& probabilities) override;
  // One row for each token of a sequence in the last pass: the attention with which the next token was
  // predicted.
  const Rows& of(int64_t sequence) const { return rows_.at(sequence); }

 private:
  std::string name_;
  std::map<int64_t, Rows> rows_;
};

}  // namespace qkv
