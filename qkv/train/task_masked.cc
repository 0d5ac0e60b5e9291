// Masked language modelling: what an encoder finds where tokens were hidden.
#include <algorithm>

#include "qkv/base/progress.h"
#include "qkv/data/length_batches.h"
#include "qkv/infer/predict.h"
#include "qkv/train/corpus.h"
#include "qkv/train/masked_text.h"
#include "qkv/train/tasks.h"

namespace qkv {
namespace {

class MaskedLanguageModelling : public Task {
 public:
  MaskedLanguageModelling(const TrainConfig& config, Corpus corpus)
      : Task(config, std::move(corpus.tokenizer)),
        text_(std::move(corpus.text)),
        cached_(corpus.cached),
        tokens_(encoder_tokens(tokenizer_)),
        train_(pieces_with_words(text_.train, tokenizer_, config.model.context)),
        valid_(pieces_with_words(text_.valid, tokenizer_, config.model.context)),
        masking_(masking_for(tokenizer_, config.masking)),
        batches_(lengths_of(train_), config.batch_tokens, config.seed) {}

  std::string data_text() const override {
    return fmt::format("{} training tokens in {} sequences and {} validation tokens{}",
                       human_count(text_.train.size()), human_count(std::ssize(train_)),
                       human_count(text_.valid.size()), cached_ ? " (cached)" : "");
  }
  std::string step_text(int64_t) const override {
    return fmt::format("{} tokens ({} steps a pass)", config_.batch_tokens * config_.accumulate,
                       batches_.batches_per_epoch() / config_.accumulate);
  }
  std::string fingerprint() const override {
    return fmt::format("training tokens = {} ({})\nvalidation tokens = {} ({})\n", text_.train.size(),
                       text_.train_hash, text_.valid.size(), text_.valid_hash);
  }
  int64_t largest_batch() const override { return config_.batch; }
  double tokens_a_step(int64_t) const override {
    const auto tokens =
        static_cast<double>((text_.train.size() + 2 * std::ssize(train_)) * config_.accumulate);
    return tokens / static_cast<double>(batches_.batches_per_epoch());
  }
  // Other tokens are hidden in each epoch.
  std::vector<Batch> batches(int64_t step, int64_t) override {
    std::vector<Batch> out;
    for (int64_t i = 0; i < config_.accumulate; ++i) {
      const auto index = static_cast<uint64_t>((step - 1) * config_.accumulate + i);
      const uint64_t epoch = batches_.epoch(index);
      out.push_back(batch(text_.train, train_, batches_.items(index), config_.seed, epoch));
    }
    return out;
  }
  // The same tokens are hidden every time.
  Evaluation evaluate(const Transformer& model, int64_t, bool) const override {
    return evaluate_masked(model, text_.valid, valid_, masking_, tokens_, config_.batch_tokens);
  }
  std::string text(const Evaluation& e) const override {
    return fmt::format("{:.4f} (perplexity {:.2f} of {} hidden tokens)", e.loss(), e.perplexity(), e.tokens);
  }
  bool looks_at_all() const override { return true; }
  OrderedJson sample(const Transformer& model) const override {
    constexpr int64_t kTokens = 24;
    const std::vector<Piece>& from = valid_.empty() ? train_ : valid_;
    const TokenStream& stream = valid_.empty() ? text_.train : text_.valid;
    Piece piece = from[from.size() / 2];
    piece.end = std::min(piece.end, piece.begin + kTokens);
    Masking plain = masking_;
    plain.keep = plain.random = 0;
    const Batch b = masked_batch(stream, std::span(&piece, 1), {tokens_.first, tokens_.last}, plain, 1, 0);
    const auto ids = b.ids.values<int32_t>();
    std::vector<text::TokenId> read(ids.begin() + 1, ids.end() - 1), written = read;
    EncodedText text;
    for (const int32_t id : ids) text.encoding.add(id, {0, 0}, 0);
    const auto found = fill_masks(model, {text}, tokens_.mask, 1)[0];
    size_t m = 0;
    for (text::TokenId& id : written)
      if (id == tokens_.mask) id = found[m++].front().id;
    return {{"prompt", tokenizer_.decode(read) + " \u2192 "}, {"sample", tokenizer_.decode(written)}};
  }

 private:
  Batch batch(const TokenStream& stream, const std::vector<Piece>& pieces, const std::vector<int64_t>& which,
              uint64_t seed, uint64_t draw) const {
    std::vector<Piece> chosen;
    for (const int64_t i : which) chosen.push_back(pieces[i]);
    return masked_batch(stream, chosen, {tokens_.first, tokens_.last}, masking_, seed, draw);
  }

  TokenizedText text_;
  bool cached_;
  EncoderTokens tokens_;
  std::vector<Piece> train_, valid_;
  Masking masking_;
  LengthBatches batches_;
};

}  // namespace

std::unique_ptr<Task> make_masked_language_modelling(const TrainConfig& config,
                                                     const text::Tokenizer* given) {
  check(config.model.context > 2, "model.context: {} tokens leave no room between [CLS] and [SEP]",
        config.model.context);
  return std::make_unique<MaskedLanguageModelling>(config, load_corpus(config, given));
}

}  // namespace qkv
