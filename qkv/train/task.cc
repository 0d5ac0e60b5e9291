#include "qkv/train/task.h"

#include "qkv/base/progress.h"
#include "qkv/data/pairs.h"
#include "qkv/infer/generate.h"
#include "qkv/train/corpus.h"

namespace qkv {
namespace {

GenerateOptions sample_options(const TrainConfig& config, const text::Tokenizer& tokenizer, int64_t vocab) {
  GenerateOptions options;
  options.max_new_tokens = config.sample_tokens;
  options.sampler.excluded = tokenizer.ids_without_text(vocab);
  options.seed = config.seed;
  return options;
}

// Algorithm 13: windows of a text.
class LanguageModelling : public Task {
 public:
  LanguageModelling(const TrainConfig& config, Corpus corpus)
      : Task(config, std::move(corpus.tokenizer)),
        text_(std::move(corpus.text)),
        cached_(corpus.cached),
        windows_(text_.train, config.model.context, config.seed,
                 fmt::format("{}", fmt::join(config.data.train, ", "))) {}

  std::string data_text() const override {
    return fmt::format("{} training and {} validation tokens{}", human_count(text_.train.size()),
                       human_count(text_.valid.size()), cached_ ? " (cached)" : "");
  }
  std::string step_text(int64_t batch) const override {
    return fmt::format("{} x {} tokens", batch * config_.accumulate, config_.model.context);
  }
  std::string fingerprint() const override {
    return fmt::format("training tokens = {} ({})\nvalidation tokens = {} ({})\n", text_.train.size(),
                       text_.train_hash, text_.valid.size(), text_.valid_hash);
  }
  int64_t largest_batch() const override {
    return text_.train.size() / config_.model.context / config_.accumulate;
  }
  double tokens_a_step(int64_t batch) const override {
    return static_cast<double>(batch * config_.accumulate * config_.model.context);
  }
  std::vector<Batch> batches(int64_t step, int64_t batch) override {
    std::vector<Batch> out;
    for (int64_t i = 0; i < config_.accumulate; ++i)
      out.push_back(windows_.batch(static_cast<uint64_t>(step), i * batch, batch));
    return out;
  }
  Evaluation evaluate(const Transformer& model, int64_t batch, bool all) const override {
    return qkv::evaluate(model, text_.valid, batch, all ? 0 : config_.eval_windows);
  }
  bool looks_at_all() const override { return config_.eval_windows == 0; }
  OrderedJson sample(const Transformer& model) const override {
    constexpr int64_t kPromptTokens = 8;  // of the validation text
    std::vector<int32_t> prompt = tokenizer_.encode(config_.sample_prompt, false).ids;
    if (prompt.empty()) {
      const auto start = text_.valid.tokens().first(std::min(kPromptTokens, text_.valid.size()));
      prompt.assign(start.begin(), start.end());
    }
    GenerateOptions options = sample_options(config_, tokenizer_, model.spec().vocab_size);
    options.sampler.temperature = 0.8;
    const auto tokens = generate(model, {prompt}, options);
    return {{"prompt", tokenizer_.decode(prompt)}, {"sample", tokenizer_.decode(tokens[0])}};
  }

 private:
  TokenizedText text_;
  bool cached_;
  RandomWindows windows_;
};

// Algorithm 11: targets given their sources.
class SequenceToSequence : public Task {
 public:
  SequenceToSequence(const TrainConfig& config, PairCorpus corpus)
      : Task(config, std::move(corpus.tokenizer)),
        train_(std::move(corpus.train)),
        valid_(std::move(corpus.valid)),
        hash_(std::move(corpus.hash)),
        ends_(corpus.ends),
        batches_(train_, ends_, config.model.context, config.batch_tokens, config.seed) {}

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
    for (int64_t i = 0; i < config_.accumulate; ++i)
      out.push_back(batches_.batch(static_cast<uint64_t>((step - 1) * config_.accumulate + i)));
    return out;
  }
  Evaluation evaluate(const Transformer& model, int64_t, bool) const override {
    return qkv::evaluate(model, valid_, ends_, config_.batch_tokens);
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
  PairStream train_, valid_;
  std::string hash_;
  SequenceEnds ends_;
  PairBatches batches_;
};

}  // namespace

std::unique_ptr<Task> make_task(const TrainConfig& config, const text::Tokenizer* given) {
  if (config.model.architecture == Architecture::encoder_decoder)
    return std::make_unique<SequenceToSequence>(config, load_pairs(config.data, config.tokenizer, given));
  return std::make_unique<LanguageModelling>(config, load_corpus(config.data, config.tokenizer, given));
}

}  // namespace qkv
