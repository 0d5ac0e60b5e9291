// Language modelling: predicts the next token of a text.
#include <fmt/format.h>

#include <cctype>

#include "qkv/base/json_value.h"
#include "qkv/base/progress.h"
#include "qkv/data/table.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/tasks/tasks.h"

namespace qkv {
namespace {

class LanguageModelling : public Task {
 public:
  LanguageModelling(const TrainConfig& config, Corpus corpus)
      : Task(config, std::move(corpus.tokenizer)),
        text_(std::move(corpus.text)),
        cached_(corpus.cached),
        source_(fmt::format("{}", fmt::join(config.data.train, ", "))),
        windows_(text_.train, config.window_length(), config.seed, source_),
        begins_(begins_with_end_of_text(tokenizer_)) {
    notes_ = text_.notes;
    unknown_ = tell_unknown(text_.train.unknown, text_.train.size());
  }

  std::string data_text() const override {
    return fmt::format("{} training and {} validation tokens{}{}{}", human_count(text_.train.size()),
                       human_count(text_.valid.size()), unknown_, text_.skipped.text(),
                       cached_ ? " (cached)" : "");
  }
  std::string step_text(int64_t batch) const override {
    return fmt::format("{} x {} tokens", batch * config_.passes(), config_.window_length());
  }
  std::string fingerprint() const override { return fingerprint_of(text_); }
  int64_t largest_batch() const override {
    return text_.train.size() / config_.window_length() / config_.passes();
  }
  void expect_batch(int64_t batch) const override {
    if (config_.model.memory > 0) streams(batch);
  }
  double tokens_a_step(int64_t batch) const override {
    return static_cast<double>(batch * config_.passes() * config_.window_length());
  }
  double steps_per_epoch(int64_t batch) const override {
    return static_cast<double>(text_.train.size()) / tokens_a_step(batch);
  }
  std::vector<Batch> batches(int64_t step, int64_t batch) override {
    std::vector<Batch> out;
    if (config_.model.memory > 0) {
      const StreamWindows all = streams(batch);
      for (int64_t i = 0; i < config_.passes(); ++i) out.push_back(all.batch(step - 1, i * batch, batch));
      return out;
    }
    for (int64_t i = 0; i < config_.passes(); ++i) {
      out.push_back(windows_.batch(static_cast<uint64_t>(step), i * batch, batch));
      if (config_.model.order == Order::prefix)
        draw_prefixes(out.back(), config_.seed, static_cast<uint64_t>(step * config_.passes() + i));
    }
    return out;
  }
  Evaluation evaluate(const Transformer& model, int64_t batch, bool all, Communicator& ranks) const override {
    return qkv::evaluate(model, text_.valid, batch, all ? 0 : config_.eval_windows, config_.window_length(),
                         ranks);
  }
  bool looks_at_all() const override { return config_.eval_windows == 0; }
  std::vector<int32_t> opening(int64_t count) const override {
    const auto rest = text_.valid.tokens().subspan(first_word());
    const auto start = rest.first(std::min(static_cast<size_t>(count), rest.size()));
    return {start.begin(), start.end()};
  }
  OrderedJson sample(const Transformer& model) const override {
    constexpr int64_t kPromptTokens = 8;  // taken from the validation text
    // The token that begins documents also begins a sample.
    std::vector<int32_t> prompt = tokenizer_.encode(config_.sample_prompt, begins_).ids;
    if (prompt.empty()) prompt = opening(kPromptTokens);
    GenerateOptions options = sample_options(config_, tokenizer_, model.spec().vocab_size);
    options.sampler.temperature = 0.8;
    if (begins_) options.eos = {end_of_text(tokenizer_)};
    const auto tokens = generate(model, {prompt}, options);
    return {{"prompt", tokenizer_.decode(prompt, begins_)},
            {"sample", tokenizer_.decode(tokens[0], begins_)}};
  }

 private:
  // The first validation token that begins a word, since the split may fall inside a word.
  size_t first_word() const {
    constexpr size_t kLongest = 64;  // tokens of a word
    const auto train = text_.train.tokens(), valid = text_.valid.tokens();
    const DataConfig& data = config_.data;
    if (!data.valid.empty() || are_documents(data) || train.empty()) return 0;
    std::vector<int32_t> before(train.end() - std::min<std::ptrdiff_t>(std::ssize(train), 8), train.end());
    for (size_t i = 0; i < std::min(kLongest, valid.size()); ++i) {
      const std::string text = tokenizer_.decode(before);
      before.push_back(valid[i]);
      const std::string longer = tokenizer_.decode(before);
      const auto space_at = [&](size_t at) {
        return at < longer.size() && std::isspace(static_cast<unsigned char>(longer[at])) != 0;
      };
      if (text.empty() || space_at(text.size() - 1) || space_at(text.size())) return i;
    }
    return 0;
  }
  // Streams that a model with memory continues reading.
  StreamWindows streams(int64_t batch) const {
    return {text_.train, config_.window_length(), batch * config_.passes(), source_};
  }

  TokenizedText text_;
  bool cached_;
  std::string source_;
  RandomWindows windows_;
  bool begins_;
  std::string unknown_;
};

}  // namespace

std::unique_ptr<Task> make_language_modelling(const TrainConfig& config, const Origin* given) {
  return std::make_unique<LanguageModelling>(config, load_corpus(config, given));
}

}  // namespace qkv
