// Sequences with labels: classes, tags, answers.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "qkv/data/dataset.h"

namespace qkv {

// Tokens as an encoder reads them, including special ones, with targets.
struct LabelledStream {
  // Targets by output. sequence_classes: one per item. span: two positions per sequence, counted from
  // its start. token_classes: one per token, kIgnored if the token has none.
  Output output = Output::sequence_classes;
  TokenStream tokens;  // one document per sequence
  std::vector<int32_t> segments;
  std::vector<int32_t> targets;
  // Numbers of each sequence (ModelInput::sequence_numbers), for sequence_classes with several labels or with
  // numbers: `columns` of them. Their targets are then 0.
  int64_t columns = 0;
  std::vector<float> numbers = {};
  // Multiple choice: question q has the sequences [questions[q], questions[q + 1]), one for each choice, and
  // the stream's items are questions. Empty: items are sequences.
  std::vector<int64_t> questions = {};

  // Number of items.
  int64_t size() const { return std::ssize(questions.empty() ? tokens.starts() : questions) - 1; }
  // `segments`: one per token; `its_numbers`: `columns` of them. Throws Error if the lengths do not match.
  // A sequence of a question has no target.
  void append(const std::vector<int32_t>& ids, const std::vector<int32_t>& segments,
              const std::vector<int32_t>& targets, const std::vector<float>& its_numbers = {});
  // Ends a question whose choices were appended; `right`: the right one, from 0.
  void end_question(int32_t right);
  // Tokens of each item.
  std::vector<int64_t> lengths() const;
  // The sequences [begin, end) of an item, and its targets.
  std::pair<int64_t, int64_t> sequences_of(int64_t item) const;
  std::span<const int32_t> targets_of(int64_t item) const;
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

// Builds a batch of these items.
Batch labelled_batch(const LabelledStream& stream, std::span<const int64_t> which);
// The same with noise, which is a function of (seed, draw, the sequence). token_classes get masks only. A
// text keeps at least one token. REQUIRES: no spans.
Batch labelled_batch(const LabelledStream& stream, std::span<const int64_t> which, const Augmentation& noise,
                     uint64_t seed, uint64_t draw);

}  // namespace qkv
