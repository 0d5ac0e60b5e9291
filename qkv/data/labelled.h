// Sequences with labels: classes, tags, answers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkv/data/dataset.h"

namespace qkv {

// Tokens as an encoder reads them, including special ones, with targets.
struct LabelledStream {
  // Targets by output. sequence_classes: one per sequence. span: two positions per sequence, counted from
  // its start. token_classes: one per token, kIgnored if the token has none.
  Output output = Output::sequence_classes;
  TokenStream tokens;  // one document per sequence
  std::vector<int32_t> segments;
  std::vector<int32_t> targets;
  // Numbers of each sequence (ModelInput::sequence_numbers), for sequence_classes with several labels or with
  // numbers: `columns` of them. Their targets are then 0.
  int64_t columns = 0;
  std::vector<float> numbers = {};

  int64_t size() const { return std::ssize(tokens.starts()) - 1; }
  // `segments`: one per token; `its_numbers`: `columns` of them. Throws Error if the lengths do not match.
  void append(const std::vector<int32_t>& ids, const std::vector<int32_t>& segments,
              const std::vector<int32_t>& targets, const std::vector<float>& its_numbers = {});
  std::vector<int64_t> lengths() const;
  // Targets of sequence d.
  std::span<const int32_t> targets_of(int64_t d) const;
};

// Noise that training may add to the tokens of texts; special tokens are left unchanged.
struct Augmentation {
  double drop = 0;  // probability of removing a token
  double swap = 0;  // probability of swapping a token with the next one
  double mask = 0;  // probability of replacing a token with mask_id
  int32_t mask_id = 0;
  std::vector<bool> special;  // by id: true for special tokens

  bool on() const { return drop > 0 || swap > 0 || mask > 0; }
};

// Builds a batch of these sequences.
Batch labelled_batch(const LabelledStream& stream, std::span<const int64_t> which);
// The same with noise, which is a function of (seed, draw, the sequence). token_classes get masks only. A
// text keeps at least one token. REQUIRES: no spans.
Batch labelled_batch(const LabelledStream& stream, std::span<const int64_t> which, const Augmentation& noise,
                     uint64_t seed, uint64_t draw);

}  // namespace qkv
