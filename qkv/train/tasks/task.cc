#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/base/json_value.h"
#include "qkv/base/progress.h"
#include "qkv/infer/translate.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/train/tasks/tasks.h"

namespace qkv {

std::vector<OrderedJson> Task::samples(const Transformer& model) const {
  return {sample(model)};
}

std::string Task::text(const Evaluation& e) const {
  return fmt::format("{:.4f}", e.loss());
}

std::string Task::tell_unknown(int64_t unknown, int64_t tokens) {
  constexpr double kMany = 0.05;
  if (unknown == 0) return "";
  const double share = static_cast<double>(unknown) / static_cast<double>(tokens);
  if (share > kMany)
    notes_.push_back(
        fmt::format("warning: {:.1f}% of the training tokens are unknown: the vocabulary lacks what they "
                    "stand for, so that "
                    "a low loss says little (raise tokenizer.vocab_size, or use tokenizer.type = \"bpe\", "
                    "which knows all)",
                    100 * share));
  return fmt::format(" ({} unknown)",
                     share < 0.0001 ? fmt::format("{}", unknown) : fmt::format("{:.2f}%", 100 * share));
}

int64_t Task::count_unknown(std::span<const int32_t> ids) const {
  std::vector<bool> unknown(tokenizer_.vocab_size(), false);
  for (const text::TokenId id : tokenizer_.ids_without_text(unknown.size())) unknown[id] = true;
  return std::count_if(ids.begin(), ids.end(), [&](int32_t id) { return unknown[static_cast<size_t>(id)]; });
}

std::unique_ptr<Task> make_task(const TrainConfig& run, const Origin* given) {
  std::optional<Origin> named;
  if (given == nullptr) {
    named = origin_of(run);
    given = named ? &*named : nullptr;
  }
  TrainConfig config = run;
  if (given != nullptr && !config.tokenizer.add_special.empty())  // the model grows with its tokenizer
    config.model.vocab_size =
        std::max(config.model.vocab_size, static_cast<int64_t>(given->tokenizer.vocab_size()));
  check(carries(config.model.architecture, config.objective),
        "the objective {} does not fit the architecture {}", name_of(config.objective),
        name_of(config.model.architecture));
  check(config.model.source_vocab_size == 0 ||
            (config.objective == Objective::sequence_to_sequence && config.mix.empty()),
        "model.from: its sources have a vocabulary of their own: it learns pairs alone "
        "(sequence_to_sequence), not {}",
        config.mix.empty() ? name_of(config.objective) : "several data sets");
  if (!config.mix.empty()) return make_mixture(config, given);
  switch (config.objective) {
    case Objective::next_token:
      return make_language_modelling(config, given);
    case Objective::masked:
    case Objective::permutation:
      return make_masked_language_modelling(config, given);
    case Objective::sequence_to_sequence:
      return make_sequence_to_sequence(config, given);
    case Objective::span_corruption:
    case Objective::denoise:
    case Objective::prefix_lm:
      return make_text_restoration(config, given);
    case Objective::chat:
      return make_chat(config, given);
    case Objective::embed:
      return make_embedding(config, given);
    case Objective::classify:
    case Objective::multi_label:
    case Objective::regression:
    case Objective::multiple_choice:
    case Objective::tag:
    case Objective::answer:
      return make_labelled(config, given);
  }
  fail("train.objective: unknown");
}

void complete_model(TrainConfig& config, const Task& task) {
  ModelSpec& m = config.model;
  if (config.from.empty()) {
    const text::Tokenizer& tokenizer = task.tokenizer();
    m.vocab_size = static_cast<int64_t>(tokenizer.vocab_size());
    if (tokenizer.has_own_sources())
      m.source_vocab_size = static_cast<int64_t>(tokenizer.of_sources().vocab_size());
  } else if (!config.tokenizer.add_special.empty()) {
    m.vocab_size = std::max(m.vocab_size, static_cast<int64_t>(task.tokenizer().vocab_size()));
  }
  m.labels = task.labels();
  if (m.lora.any()) m.lora.adapters = adapters_of(m);
}

void find_steps(TrainConfig& config, const Task& task, int64_t batch) {
  if (config.epochs <= 0) return;
  const double steps = std::ceil(config.epochs * task.steps_per_epoch(batch) - 1e-9);
  check(steps < 1e9, "train.epochs: {} passes are {:.3g} steps, more than a run can have", config.epochs,
        steps);
  set_steps(config, std::max<int64_t>(1, static_cast<int64_t>(steps)));
}

GenerateOptions sample_options(const TrainConfig& config, const text::Tokenizer& tokenizer, int64_t vocab) {
  GenerateOptions options;
  options.max_new_tokens = config.sample_tokens;
  options.sampler.excluded = tokenizer.ids_without_text(vocab);
  options.seed = config.seed;
  return options;
}

OrderedJson sample_of_source(const TrainConfig& config, const text::Tokenizer& tokenizer,
                             const SequenceEnds& ends, const Transformer& model,
                             std::vector<int32_t> source) {
  source.resize(std::min(source.size(), longest_source(model.spec(), ends)));
  const std::string prompt = tokenizer.of_sources().decode(source) + " \u2192 ";
  GenerateOptions options = sample_options(config, tokenizer, model.spec().vocab_size);
  std::erase(options.sampler.excluded, ends.eos);
  options.sampler.temperature = 0;
  options.eos = {ends.eos};
  const Prompts given = prompts_for(model.spec(), {std::move(source)}, ends);
  auto tokens = generate(model, given.prompts, options, nullptr, given.sources)[0];
  if (!tokens.empty() && tokens.back() == ends.eos) tokens.pop_back();
  return {{"prompt", prompt}, {"sample", tokenizer.decode(tokens)}};
}

std::string summary_of(const TokenizedText& text, size_t pieces, const std::string& unknown, bool cached) {
  return fmt::format("{} training tokens in {} sequences and {} validation tokens{}{}{}",
                     human_count(text.train.size()), human_count(static_cast<int64_t>(pieces)),
                     human_count(text.valid.size()), unknown, text.skipped.text(), cached ? " (cached)" : "");
}

std::string fingerprint_of(const TokenizedText& text) {
  return fmt::format("training tokens = {} ({})\nvalidation tokens = {} ({})\n", text.train.size(),
                     text.train_hash, text.valid.size(), text.valid_hash);
}

void TaskOfSequences::take_lengths(std::vector<int64_t> lengths) {
  tokens_ = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  batches_.emplace(std::move(lengths), config_.tokens_of_pass(), config_.seed);
}

std::string TaskOfSequences::step_text(int64_t) const {
  return fmt::format("{} tokens ({} per epoch)", config_.tokens_of_pass() * config_.passes(),
                     counted(batches_->batches_per_epoch() / config_.passes(), "step"));
}

double TaskOfSequences::tokens_a_step(int64_t) const {
  return static_cast<double>(training_tokens() * config_.passes()) /
         static_cast<double>(batches_->batches_per_epoch());
}

double TaskOfSequences::steps_per_epoch(int64_t) const {
  return static_cast<double>(batches_->batches_per_epoch()) / static_cast<double>(config_.passes());
}

std::vector<Batch> TaskOfSequences::batches(int64_t step, int64_t) {
  std::vector<Batch> out;
  for (int64_t i = 0; i < config_.passes(); ++i) {
    const auto index = static_cast<uint64_t>((step - 1) * config_.passes() + i);
    const uint64_t epoch = batches_->epoch(index);
    out.push_back(training_batch(batches_->items(index), index, epoch));
  }
  return out;
}

}  // namespace qkv
