// Sequence to sequence: targets given their sources.
#include <algorithm>

#include "qkv/base/progress.h"
#include "qkv/infer/translate.h"
#include "qkv/text/bleu.h"
#include "qkv/train/corpus.h"
#include "qkv/train/tasks.h"

namespace qkv {
namespace {

class SequenceToSequence : public Task {
 public:
  SequenceToSequence(const TrainConfig& config, PairCorpus corpus)
      : Task(config, std::move(corpus.tokenizer)),
        train_(std::move(corpus.train)),
        valid_(std::move(corpus.valid)),
        hash_(std::move(corpus.hash)),
        ends_(corpus.ends),
        batches_(pair_lengths(train_, config.model.context), config.batch_tokens, config.seed) {
    // Spread evenly over the validation pairs: files are often sorted.
    const auto all = std::ssize(corpus.valid_texts.source);
    const int64_t n = std::min<int64_t>(config.eval_bleu, all);
    for (int64_t i = 0; i < n; ++i) {
      to_translate_.source.push_back(corpus.valid_texts.source[i * all / n]);
      to_translate_.target.push_back(corpus.valid_texts.target[i * all / n]);
    }
  }

  std::string data_text() const override {
    return fmt::format("{} training pairs of {} + {} tokens and {} validation pairs",
                       human_count(train_.size()), human_count(train_.source.size()),
                       human_count(train_.target.size()), human_count(valid_.size()));
  }
  std::string step_text(int64_t) const override {
    return fmt::format("{} tokens ({} steps a pass)", config_.batch_tokens * config_.accumulate,
                       batches_.batches_per_epoch() / config_.accumulate);
  }
  std::string fingerprint() const override { return fmt::format("pairs = {} ({})\n", train_.size(), hash_); }
  int64_t largest_batch() const override { return config_.batch; }
  double tokens_a_step(int64_t) const override {
    const auto tokens = static_cast<double>((train_.target.size() + train_.size()) * config_.accumulate);
    return tokens / static_cast<double>(batches_.batches_per_epoch());
  }
  std::vector<Batch> batches(int64_t step, int64_t) override {
    std::vector<Batch> out;
    for (int64_t i = 0; i < config_.accumulate; ++i) {
      const auto index = static_cast<uint64_t>((step - 1) * config_.accumulate + i);
      out.push_back(pair_batch(train_, batches_.items(index), ends_, config_.model.context));
    }
    return out;
  }
  Evaluation evaluate(const Transformer& model, int64_t, bool) const override {
    Evaluation e = qkv::evaluate(model, valid_, ends_, config_.batch_tokens);
    if (!to_translate_.source.empty()) e.scores = {{"bleu", bleu(model)}};
    return e;
  }
  std::string text(const Evaluation& e) const override {
    return Task::text(e) + (e.scores.empty() ? "" : fmt::format(", BLEU {:.2f}", e.score("bleu")));
  }
  bool looks_at_all() const override { return true; }
  OrderedJson sample(const Transformer& model) const override {
    std::vector<int32_t> source = tokenizer_.encode(config_.sample_prompt, false).ids;
    const PairStream& from = valid_.size() > 0 ? valid_ : train_;
    if (source.empty()) {
      const auto first = from.source.tokens().first(static_cast<size_t>(from.source.starts()[1]));
      source.assign(first.begin(), first.end());
    }
    source.resize(std::min<size_t>(source.size(), static_cast<size_t>(model.spec().context - 1)));
    const std::string prompt = tokenizer_.decode(source) + " \u2192 ";
    source.push_back(ends_.eos);
    GenerateOptions options = sample_options(config_, tokenizer_, model.spec().vocab_size);
    std::erase(options.sampler.excluded, ends_.eos);
    options.sampler.temperature = 0;
    options.eos = {ends_.eos};
    auto tokens = generate(model, {{ends_.bos}}, options, nullptr, {source})[0];
    if (!tokens.empty() && tokens.back() == ends_.eos) tokens.pop_back();
    return {{"prompt", prompt}, {"sample", tokenizer_.decode(tokens)}};
  }

 private:
  double bleu(const Transformer& model) const {
    BeamOptions greedy;
    greedy.beams = 1;
    const Translations found =
        translate({model, tokenizer_, ends_.bos, ends_.eos}, to_translate_.source, greedy);
    std::vector<std::string> outputs;
    for (const auto& best : found.best) outputs.push_back(best.front().text);
    return text::corpus_bleu(outputs, to_translate_.target).score;
  }

  PairStream train_, valid_;
  PairTexts to_translate_;
  std::string hash_;
  SequenceEnds ends_;
  LengthBatches batches_;
};

}  // namespace

std::unique_ptr<Task> make_sequence_to_sequence(const TrainConfig& config, const text::Tokenizer* given) {
  return std::make_unique<SequenceToSequence>(config, load_pairs(config, given));
}

}  // namespace qkv
