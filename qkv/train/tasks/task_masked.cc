// Masked language modelling: what an encoder finds where tokens were hidden, all at once or in a random
// order.
#include <algorithm>

#include "qkv/base/json_value.h"
#include "qkv/base/progress.h"
#include "qkv/data/length_batches.h"
#include "qkv/infer/predict.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/tasks/masked_text.h"
#include "qkv/train/tasks/tasks.h"

namespace qkv {
namespace {

class MaskedLanguageModelling : public TaskOfSequences {
 public:
  MaskedLanguageModelling(const TrainConfig& config, Corpus corpus)
      : TaskOfSequences(config, std::move(corpus.tokenizer)),
        text_(std::move(corpus.text)),
        cached_(corpus.cached),
        tokens_(encoder_tokens(tokenizer_)),
        train_(pieces_with_words(text_.train, tokenizer_, config.model.context, ends_of(config.masking))),
        valid_(pieces_with_words(text_.valid, tokenizer_, config.model.context, ends_of(config.masking))),
        masking_(masking_for(tokenizer_, config.masking)) {
    masking_.permuted = config.objective == Objective::permutation;
    notes_ = text_.notes;
    unknown_ = tell_unknown(text_.train.unknown, text_.train.size());
    take_lengths(lengths_of(train_));
  }

  std::string data_text() const override { return summary_of(text_, train_.size(), unknown_, cached_); }
  std::string fingerprint() const override { return fingerprint_of(text_); }
  // The same tokens are hidden every time.
  Evaluation evaluate(const Transformer& model, int64_t, bool, Communicator& ranks) const override {
    return evaluate_masked(model, text_.valid, valid_, masking_, tokens_, config_.batch_tokens,
                           kValidationMask, ranks);
  }
  std::string text(const Evaluation& e) const override {
    return fmt::format("{:.4f} (perplexity {:.2f}, {} masked tokens)", e.loss(), e.perplexity(), e.tokens) +
           (e.scores.empty() ? "" : fmt::format(", next sentence {:.2f}%", 100 * e.score("next_sentence")));
  }
  std::vector<std::string> labels() const override {
    return masking_.next_sentence ? std::vector<std::string>{"next", "random"} : std::vector<std::string>();
  }
  OrderedJson sample(const Transformer& model) const override {
    constexpr int64_t kTokens = 24;
    const std::vector<Piece>& from = valid_.empty() ? train_ : valid_;
    const TokenStream& stream = valid_.empty() ? text_.train : text_.valid;
    Piece piece = from[from.size() / 2];
    piece.end = std::min(piece.end, piece.begin + kTokens);
    Masking plain = masking_;
    plain.keep = plain.random = 0;
    plain.permuted = plain.next_sentence = false;
    const Batch b = masked_batch(stream, std::span(&piece, 1), {tokens_.first, tokens_.last}, plain, 1, 0);
    const auto ids = b.ids.values();
    std::vector<text::TokenId> read(ids.begin() + 1, ids.end() - 1), written = read;
    EncodedText text;
    for (const int32_t id : ids) text.encoding.add(id, {0, 0}, 0);
    const auto found = fill_masks(model, {text}, tokens_.mask, 1, config_.batch_tokens,
                                  static_cast<int64_t>(tokenizer_.vocab_size()))[0];
    size_t m = 0;
    for (text::TokenId& id : written)
      if (id == tokens_.mask) id = found[m++].front().id;
    return {{"prompt", tokenizer_.decode(read) + " \u2192 "}, {"sample", tokenizer_.decode(written)}};
  }

 private:
  // Other tokens are hidden in each epoch.
  Batch training_batch(const std::vector<int64_t>& items, uint64_t, uint64_t epoch) const override {
    std::vector<Piece> chosen;
    for (const int64_t i : items) chosen.push_back(train_[i]);
    return masked_batch(text_.train, chosen, {tokens_.first, tokens_.last}, masking_, config_.seed, epoch);
  }

  TokenizedText text_;
  bool cached_;
  std::string unknown_;
  EncoderTokens tokens_;
  std::vector<Piece> train_, valid_;
  Masking masking_;
};

}  // namespace

std::unique_ptr<Task> make_masked_language_modelling(const TrainConfig& config, const Origin* given) {
  check(config.model.context > ends_of(config.masking),
        "model.context: {} tokens leave no room between [CLS] and [SEP]", config.model.context);
  return std::make_unique<MaskedLanguageModelling>(config, load_corpus(config, given));
}

}  // namespace qkv
