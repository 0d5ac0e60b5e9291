// Drafts by n-grams (prompt lookup decoding, Saxena 2023).
#pragma once

#include "qkv/infer/drafter.h"

namespace qkv {

// Drafts what followed the last tokens where they occurred before: in the source, the prompt or the output.
// It takes the longest match, and among equals the last.
class NgramDrafter : public Drafter {
 public:
  // `least`: tokens that must match. `reads_source`: source and output have the same vocabulary.
  explicit NgramDrafter(int64_t least = 2, bool reads_source = true)
      : least_(least), reads_source_(reads_source) {}
  std::vector<std::vector<int32_t>> draft(std::span<const DraftQuery> queries) override;

 private:
  int64_t least_;
  bool reads_source_;
};

}  // namespace qkv
