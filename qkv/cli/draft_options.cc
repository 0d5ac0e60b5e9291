#include "qkv/cli/draft_options.h"

#include <fmt/format.h>

#include <cstdio>

#include "qkv/cli/console.h"
#include "qkv/infer/model_drafter.h"
#include "qkv/infer/mtp_drafter.h"
#include "qkv/infer/ngram_drafter.h"

namespace qkv {
namespace {

void expect_same_tokens(const std::string& dir, const text::Tokenizer& draft, const text::Tokenizer& target,
                        int64_t vocab_size) {
  for (int32_t id = 0; id < vocab_size; ++id) {
    const auto theirs = draft.id_to_token(id), ours = target.id_to_token(id);
    if (theirs != ours)
      throw UsageError(
          fmt::format("--draft: {}: token {} is '{}' there and '{}' here: both models need the same "
                      "vocabulary",
                      dir, id, theirs.value_or(""), ours.value_or("")));
  }
}

}  // namespace

void add_draft_options(Command& c, DraftOptions& o) {
  c.add_option(
      "--draft", o.by,
      "Write faster, and the same (speculative decoding): drafts by ngrams (what followed the last tokens "
      "before), mtp (the model's own modules) or a smaller model's directory");
  c.add_option("--draft-tokens", o.tokens, "Maximum length of a draft in tokens (default: 15)")
      ->range(int64_t{1}, EngineOptions::kMostDrafted);
}

void expect_drafts(const DraftOptions& options, const Ensemble& models) {
  if (options.by.empty() && options.tokens != 0)
    throw UsageError("--draft-tokens: has no effect without --draft");
  for (const Transformer* model : models.models())
    if (!options.by.empty() && !continues_in_parts(model->spec()))
      throw UsageError(
          "--draft: has no effect: this model reads its text as a whole, not several tokens at a time");
}

Drafts::Drafts(const DraftOptions& options, const TextModel& target, DType compute) : options_(options) {
  const std::string& by = options_.by;
  if (by.empty()) return;
  const ModelSpec& spec = target.model->spec();
  if (by == "ngrams") {
    drafter_ = std::make_unique<NgramDrafter>();
    return;
  }
  if (by == "mtp") {
    naming_option("--draft: ", [&] { drafter_ = std::make_unique<MtpDrafter>(*target.model); });
    return;
  }
  model_ = load_language_model(by, compute);
  naming_option("--draft: ", [&] { drafter_ = std::make_unique<ModelDrafter>(*model_->model, spec); });
  expect_same_tokens(by, model_->tokenizer, target.tokenizer, spec.vocab_size);
}

EngineOptions Drafts::with(EngineOptions options) const {
  options.drafter = drafter_.get();
  if (options_.tokens > 0) options.drafted_tokens = options_.tokens;
  return options;
}

void Drafts::print_note(const Engine& engine) const {
  const Drafting& d = engine.drafting();
  if (drafter_ == nullptr || d.passes == 0) return;
  fmt::print(stderr, "drafts: {} of {} tokens taken, {:.2f} tokens a pass\n", d.accepted, d.drafted,
             static_cast<double>(d.passes + d.accepted) / static_cast<double>(d.passes));
}

}  // namespace qkv
