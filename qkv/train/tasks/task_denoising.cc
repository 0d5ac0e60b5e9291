// Restoring texts: what a model writes where spans were taken away, or a text was noised.

#include "qkv/base/json_value.h"
#include "qkv/base/progress.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/tasks/denoising.h"
#include "qkv/train/tasks/masked_text.h"
#include "qkv/train/tasks/tasks.h"

namespace qkv {
namespace {

class TextRestoration : public TaskOfSequences {
 public:
  TextRestoration(const TrainConfig& config, Corpus corpus, const Origin* given)
      : TaskOfSequences(config, std::move(corpus.tokenizer)),
        text_(std::move(corpus.text)),
        cached_(corpus.cached),
        ends_(sequence_ends(tokenizer_, given ? &given->ids : nullptr)),
        restoration_(restoration_for(tokenizer_, {config.objective, config.spans, config.noise})),
        train_(pieces_of(text_.train, restorable_tokens(config.model, restoration_))),
        valid_(pieces_of(text_.valid, restorable_tokens(config.model, restoration_))) {
    check(config.model.context > ends_.around_source(),
          "model.context: {} tokens leave no room for a source and its end", config.model.context);
    notes_ = text_.notes;
    unknown_ = tell_unknown(text_.train.unknown, text_.train.size());
    take_lengths(lengths_of(train_, restoration_));
  }

  std::string data_text() const override { return summary_of(text_, train_.size(), unknown_, cached_); }
  std::string fingerprint() const override { return fingerprint_of(text_); }
  // The same ones every time.
  Evaluation evaluate(const Transformer& model, int64_t, bool, Communicator& ranks) const override {
    return evaluate_restored(model, text_.valid, valid_, restoration_, ends_, config_.batch_tokens,
                             kValidationMask, ranks);
  }
  std::string text(const Evaluation& e) const override {
    return fmt::format("{:.4f} (perplexity {:.2f}, {} target tokens)", e.loss(), e.perplexity(), e.tokens);
  }
  OrderedJson sample(const Transformer& model) const override {
    const bool any = !valid_.empty();
    const std::vector<Piece>& from = any ? valid_ : train_;
    Piece piece = from[from.size() / 2];
    piece.end = std::min<int64_t>(piece.end, piece.begin + 32);
    Corrupted c = corrupted(any ? text_.valid : text_.train, piece, restoration_, kValidationMask, 0);
    return sample_of_source(config_, tokenizer_, ends_, model, std::move(c.source));
  }

 private:
  int64_t training_tokens() const override { return text_.train.size(); }
  // Other spans in each epoch.
  Batch training_batch(const std::vector<int64_t>& items, uint64_t, uint64_t epoch) const override {
    return restoration_batch(text_.train, train_, items, restoration_, ends_, config_.model, config_.seed,
                             epoch);
  }

  TokenizedText text_;
  bool cached_;
  std::string unknown_;
  SequenceEnds ends_;
  Restoration restoration_;
  std::vector<Piece> train_, valid_;
};

}  // namespace

std::unique_ptr<Task> make_text_restoration(const TrainConfig& config, const Origin* given) {
  check(config.model.context > 1, "model.context: {} tokens leave no room for </s>", config.model.context);
  return std::make_unique<TextRestoration>(config, load_corpus(config, given), given);
}

}  // namespace qkv
