#include "qkv/train/tasks.h"

namespace qkv {

std::string Task::text(const Evaluation& e) const {
  return fmt::format("{:.4f} ({:.4f} nats a character, {:.4f} bits a byte)", e.loss(), e.nats_per_character(),
                     e.bits_per_byte());
}

std::unique_ptr<Task> make_task(const TrainConfig& config, const text::Tokenizer* given) {
  check(config.model.architecture == architecture_for(config.objective),
        "the objective {} does not fit the architecture {}", name_of(config.objective),
        name_of(config.model.architecture));
  switch (config.objective) {
    case Objective::next_token:
      return make_language_modelling(config, given);
    case Objective::masked:
      return make_masked_language_modelling(config, given);
    case Objective::sequence_to_sequence:
      return make_sequence_to_sequence(config, given);
    case Objective::span_corruption:
    case Objective::denoise:
      return make_text_restoration(config, given);
    case Objective::embed:
      return make_embedding(config, given);
    case Objective::classify:
    case Objective::tag:
    case Objective::answer:
      return make_labelled(config, given);
  }
  fail("train.objective: unknown");
}

GenerateOptions sample_options(const TrainConfig& config, const text::Tokenizer& tokenizer, int64_t vocab) {
  GenerateOptions options;
  options.max_new_tokens = config.sample_tokens;
  options.sampler.excluded = tokenizer.ids_without_text(vocab);
  options.seed = config.seed;
  return options;
}

}  // namespace qkv
