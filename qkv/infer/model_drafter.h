// Drafts by a smaller model.
#pragma once

#include <map>

#include "qkv/infer/decode_state.h"
#include "qkv/infer/drafter.h"

namespace qkv {

// Another model writes the drafts, by each request's own options and random numbers: the more alike the two
// models' probabilities are, the more often they choose the same.
class ModelDrafter : public Drafter {
 public:
  // The model must outlive the drafter. Throws Error unless it has the vocabularies of `target`, and reads a
  // source where that does.
  ModelDrafter(const Transformer& model, const ModelSpec& target);
  std::vector<std::vector<int32_t>> draft(std::span<const DraftQuery> queries) override;
  void end(int64_t request) override { readings_.erase(request); }

 private:
  // The part of a request that the model has read.
  struct Reading {
    std::vector<int32_t> tokens;
    DecodeState state;
  };

  std::vector<int32_t> draft(const DraftQuery& query);

  const Transformer& model_;
  std::map<int64_t, Reading> readings_;
};

}  // namespace qkv
