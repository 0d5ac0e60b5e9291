// Sequences with what is to be said of them: classes, tags, answers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkv/data/dataset.h"

namespace qkv {

// Tokens as an encoder reads them, special ones included, with targets.
struct LabelledStream {
  // Targets of a sequence class: one; of a span: two, counted from the sequence's start; of token classes:
  // one a token, kIgnored where a token has none.
  Output output = Output::sequence_classes;
  TokenStream tokens;  // a document a sequence
  std::vector<int32_t> segments;
  std::vector<int32_t> targets;

  int64_t size() const { return std::ssize(tokens.starts()) - 1; }
  // `segments`: of each token. Throws Error where their numbers do not fit.
  void append(const std::vector<int32_t>& ids, const std::vector<int32_t>& segments,
              const std::vector<int32_t>& targets);
  std::vector<int64_t> lengths() const;
  // Targets of sequence d.
  std::span<const int32_t> targets_of(int64_t d) const;
};

// Noise that training may add to the tokens of a class's text, special ones aside.
struct Augmentation {
  double drop = 0;  // of the tokens are left out,
  double swap = 0;  // change places with the next one,
  double mask = 0;  // are hidden
  int32_t mask_id = 0;
  std::vector<bool> special;  // of each id

  bool on() const { return drop > 0 || swap > 0 || mask > 0; }
};

// These sequences as one batch.
Batch labelled_batch(const LabelledStream& stream, std::span<const int64_t> which);
// The same with noise, of tags by masks alone: a function of (seed, draw, the sequence). A text keeps at
// least one token. REQUIRES: no spans.
Batch labelled_batch(const LabelledStream& stream, std::span<const int64_t> which, const Augmentation& noise,
                     uint64_t seed, uint64_t draw);

}  // namespace qkv
