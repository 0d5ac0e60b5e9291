// Restoring texts: what an encoder-decoder writes where spans were taken away, or a text was noised.
#include "qkv/base/progress.h"
#include "qkv/data/length_batches.h"
#include "qkv/data/masking.h"
#include "qkv/train/corpus.h"
#include "qkv/train/tasks.h"

namespace qkv {
namespace {

class TextRestoration : public Task {
 public:
  TextRestoration(const TrainConfig& config, Corpus corpus)
      : Task(config, std::move(corpus.tokenizer)),
        text_(std::move(corpus.text)),
        cached_(corpus.cached),
        ends_(sequence_ends(tokenizer_)),
        train_(pieces_of(text_.train, config.model.context - 1)),
        valid_(pieces_of(text_.valid, config.model.context - 1)),
        spans_(config.spans),
        noise_(config.noise),
        batches_(lengths_of(text_.train, train_), config.batch_tokens, config.seed) {
    if (config.objective == Objective::span_corruption)
      spans_.sentinels = sentinels(tokenizer_);
    else
      prepare_noise();
  }

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
    return static_cast<double>(text_.train.size() * config_.accumulate) /
           static_cast<double>(batches_.batches_per_epoch());
  }
  // Other spans in each epoch.
  std::vector<Batch> batches(int64_t step, int64_t) override {
    std::vector<Batch> out;
    for (int64_t i = 0; i < config_.accumulate; ++i) {
      const auto index = static_cast<uint64_t>((step - 1) * config_.accumulate + i);
      const uint64_t epoch = batches_.epoch(index);
      out.push_back(batch(text_.train, train_, batches_.items(index), config_.seed, epoch));
    }
    return out;
  }
  // The same ones every time.
  Evaluation evaluate(const Transformer& model, int64_t, bool) const override {
    const NoGrad guard;
    Evaluation e;
    for (const std::vector<int64_t>& which :
         batches_by_length(lengths_of(text_.valid, valid_), config_.batch_tokens)) {
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
  bool looks_at_all() const override { return true; }
  OrderedJson sample(const Transformer& model) const override {
    const bool any = !valid_.empty();
    const std::vector<Piece>& from = any ? valid_ : train_;
    Piece piece = from[from.size() / 2];
    piece.end = std::min<int64_t>(piece.end, piece.begin + 32);
    Corrupted c = corrupted(any ? text_.valid : text_.train, piece, kValidationSeed, 0);
    c.source.resize(std::min<size_t>(c.source.size(), static_cast<size_t>(model.spec().context - 1)));
    const std::string prompt = tokenizer_.decode(c.source) + " \u2192 ";
    c.source.push_back(ends_.eos);
    GenerateOptions options = sample_options(config_, tokenizer_, model.spec().vocab_size);
    std::erase(options.sampler.excluded, ends_.eos);
    options.sampler.temperature = 0;
    options.eos = {ends_.eos};
    auto tokens = generate(model, {{ends_.bos}}, options, nullptr, {c.source})[0];
    if (!tokens.empty() && tokens.back() == ends_.eos) tokens.pop_back();
    return {{"prompt", prompt}, {"sample", tokenizer_.decode(tokens)}};
  }

 private:
  static constexpr uint64_t kValidationSeed = 0x76616c6964;  // "valid"
  static constexpr uint32_t kSite = 0x636f7272;              // "corr"

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
  static std::vector<int64_t> lengths_of(const TokenStream&, const std::vector<Piece>& pieces) {
    std::vector<int64_t> out;
    for (const Piece& p : pieces) out.push_back(2 * (p.end - p.begin) + 2);
    return out;
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
    return pair_batch(pairs, ends_, config_.model.context);
  }

  TokenizedText text_;
  bool cached_;
  SequenceEnds ends_;
  std::vector<Piece> train_, valid_;
  SpanCorruption spans_;
  Denoising noise_;
  LengthBatches batches_;
};

}  // namespace

std::unique_ptr<Task> make_text_restoration(const TrainConfig& config, const text::Tokenizer* given) {
  check(config.model.context > 1, "model.context: {} tokens leave no room for </s>", config.model.context);
  return std::make_unique<TextRestoration>(config, load_corpus(config, given));
}

}  // namespace qkv
