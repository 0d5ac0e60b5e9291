// Options of speculative decoding, and what they ask for.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "qkv/api/text_model.h"
#include "qkv/cli/options.h"
#include "qkv/infer/engine.h"

namespace qkv {

struct DraftOptions {
  std::string by = {};  // "ngrams", "mtp" or the directory of a model; empty: no drafts
  int64_t tokens = 0;   // 0: as many as the engine takes
};

// Declares --draft and --draft-tokens.
void add_draft_options(Command& command, DraftOptions& options);

// Throws UsageError where drafts have no effect on these models.
void expect_drafts(const DraftOptions& options, const Ensemble& models);

// The drafter that the options ask for, and its model.
class Drafts {
 public:
  // Throws UsageError where the model cannot draft for `target`.
  Drafts(const DraftOptions& options, const TextModel& target, DType compute);

  // Takes the drafter into an engine's options.
  EngineOptions with(EngineOptions options) const;
  // Tells on standard error how many drafted tokens an engine took, if it had a drafter.
  void print_note(const Engine& engine) const;

 private:
  DraftOptions options_;
  std::optional<TextModel> model_;
  std::unique_ptr<Drafter> drafter_;
};

}  // namespace qkv
