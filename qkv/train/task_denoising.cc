// Restoring texts: what a model writes where spans were taken away, or a text was noised.
#include <cmath>

#include "qkv/base/progress.h"
#include "qkv/data/length_batches.h"
#include "qkv/data/masking.h"
#include "qkv/train/corpus.h"
#include "qkv/train/tasks.h"

namespace qkv {
namespace {

class TextRestoration : public TaskOfSequences {
 public:
  TextRestoration(const TrainConfig& config, Corpus corpus, const Origin* given)
      : TaskOfSequences(config, std::move(corpus.tokenizer)),
        text_(std::move(corpus.text)),
        cached_(corpus.cached),
        ends_(sequence_ends(tokenizer_, given)),
        train_(pieces_of(text_.train, piece_length(config))),
        valid_(pieces_of(text_.valid, piece_length(config))),
        spans_(config.spans),
        noise_(config.noise) {
    check(config.model.context > ends_.around_source(),
          "model.context: {} tokens leave no room for a source and its end", config.model.context);
    take_lengths(lengths_of(train_));
    if (config.objective == Objective::span_corruption)
      spans_.sentinels = sentinels(tokenizer_);
    else
      prepare_noise();
  }

  std::string data_text() const override { return summary_of(text_, train_.size(), cached_); }
  std::string fingerprint() const override { return fingerprint_of(text_); }
  // The same ones every time.
  Evaluation evaluate(const Transformer& model, int64_t, bool) const override {
    const NoGrad guard;
    Evaluation e;
    for (const std::vector<int64_t>& which : batches_by_length(lengths_of(valid_), config_.batch_tokens)) {
      const Batch b = batch(text_.valid, valid_, which, kValidationSeed, 0);
      const CrossEntropyResult r = model.loss(b, b.targets, {}, 1);
      e.total += r.total;
      e.tokens += r.count;
    }
    e.of_tokens = e.tokens;
    return e;
  }
  std::string text(const Evaluation& e) const override {
    return fmt::format("{:.4f} (perplexity {:.2f} of {} written tokens)", e.loss(), e.perplexity(), e.tokens);
  }
  OrderedJson sample(const Transformer& model) const override {
    const bool any = !valid_.empty();
    const std::vector<Piece>& from = any ? valid_ : train_;
    Piece piece = from[from.size() / 2];
    piece.end = std::min<int64_t>(piece.end, piece.begin + 32);
    Corrupted c = corrupted(any ? text_.valid : text_.train, piece, kValidationSeed, 0);
    return sample_of_source(config_, tokenizer_, ends_, model, std::move(c.source));
  }

 private:
  static constexpr uint64_t kValidationSeed = 0x76616c6964;  // "valid"
  static constexpr uint32_t kSite = 0x636f7272;              // "corr"

  // Tokens of a text whose source and target the model can read: a decoder alone reads them in a row.
  static int64_t piece_length(const TrainConfig& config) {
    const int64_t room = config.model.context - 1;
    if (config.model.architecture == Architecture::encoder_decoder) return room;
    return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(room - 2) / both_of(config)));
  }
  // How many tokens source and target have for each of the text, without noise: spans have a sentinel in
  // both.
  static double both_of(const TrainConfig& config) {
    return config.objective == Objective::denoise ? 2
                                                  : 1 + 2 * config.spans.density / config.spans.mean_length;
  }
  void prepare_noise() {
    const auto mask = tokenizer_.token_to_id("<mask>");
    check(mask.has_value(), "the tokenizer has no token <mask>: denoising puts it in place of spans");
    noise_.mask = static_cast<int32_t>(*mask);
    for (size_t id = 0; id < tokenizer_.vocab_size(); ++id) {
      const std::string token = tokenizer_.id_to_token(static_cast<text::TokenId>(id)).value_or("");
      noise_.ends.push_back(token == "." || token == "!" || token == "?");
    }
  }
  // Tokens of source and target together, as far as they can be told before the noise.
  std::vector<int64_t> lengths_of(const std::vector<Piece>& pieces) const {
    std::vector<int64_t> out;
    for (const Piece& p : pieces)
      out.push_back(static_cast<int64_t>(std::ceil(static_cast<double>(p.end - p.begin) * both_of(config_))) +
                    2);
    return out;
  }
  int64_t training_tokens() const override { return text_.train.size(); }
  // Other spans in each epoch.
  Batch training_batch(const std::vector<int64_t>& items, uint64_t, uint64_t epoch) const override {
    return batch(text_.train, train_, items, config_.seed, epoch);
  }
  Corrupted corrupted(const TokenStream& stream, const Piece& p, uint64_t seed, uint64_t draw) const {
    const auto tokens = stream.tokens().subspan(p.begin, p.end - p.begin);
    // A stream of its own for each piece: its place takes part in the seed.
    const RandomStream random{seed ^ (static_cast<uint64_t>(p.begin) << 20), draw, kSite};
    return config_.objective == Objective::span_corruption ? corrupt_spans(tokens, spans_, random)
                                                           : add_noise(tokens, noise_, random);
  }
  Batch batch(const TokenStream& stream, const std::vector<Piece>& pieces, const std::vector<int64_t>& which,
              uint64_t seed, uint64_t draw) const {
    std::vector<Corrupted> pairs;
    for (const int64_t i : which) pairs.push_back(corrupted(stream, pieces[i], seed, draw));
    return pair_batch(pairs, ends_, config_.model);
  }

  TokenizedText text_;
  bool cached_;
  SequenceEnds ends_;
  std::vector<Piece> train_, valid_;
  SpanCorruption spans_;
  Denoising noise_;
};

}  // namespace

std::unique_ptr<Task> make_text_restoration(const TrainConfig& config, const Origin* given) {
  check(config.model.context > 1, "model.context: {} tokens leave no room for </s>", config.model.context);
  return std::make_unique<TextRestoration>(config, load_corpus(config, given), given);
}

}  // namespace qkv
