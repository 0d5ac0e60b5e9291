// The attention that a model pays to its source while it writes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "qkv/models/transformer.h"

namespace qkv {

// Takes, of each pass, the probabilities of the first head of the decoder's last cross-attention, which
// OpenNMT and CTranslate2 take for an alignment, too.
class AttentionRows : public Probe {
 public:
  using Rows = std::vector<std::vector<float>>;  // [tokens, source tokens]

  // Throws Error where no heads look at a source.
  explicit AttentionRows(const ModelSpec& spec);

  bool wants(std::string_view name) const override { return name == name_; }
  void visit_head(std::string_view name, int64_t sequence, int64_t head, Tensor& probabilities) override;
  // A row for each token that the last pass read of a sequence: how it looked before the token behind it.
  const Rows& of(int64_t sequence) const { return rows_.at(sequence); }

 private:
  std::string name_;
  std::map<int64_t, Rows> rows_;
};

}  // namespace qkv
