// The tasks, one file each. make_task() chooses among them.
#pragma once

#include "qkv/infer/generate.h"
#include "qkv/train/task.h"

namespace qkv {

// Algorithm 13: windows of a text.
std::unique_ptr<Task> make_language_modelling(const TrainConfig& config, const text::Tokenizer* given);
// Algorithm 12: texts with hidden tokens.
std::unique_ptr<Task> make_masked_language_modelling(const TrainConfig& config, const text::Tokenizer* given);
// Algorithm 11: targets given their sources.
std::unique_ptr<Task> make_sequence_to_sequence(const TrainConfig& config, const text::Tokenizer* given);
// Algorithm 11 on texts that were corrupted: T5's spans, BART's noise.
std::unique_ptr<Task> make_text_restoration(const TrainConfig& config, const text::Tokenizer* given);
// Pairs of texts whose vectors should be near each other.
std::unique_ptr<Task> make_embedding(const TrainConfig& config, const text::Tokenizer* given);
// Classes, tags and answers.
std::unique_ptr<Task> make_labelled(const TrainConfig& config, const text::Tokenizer* given);

// How a task's sample is written.
GenerateOptions sample_options(const TrainConfig& config, const text::Tokenizer& tokenizer, int64_t vocab);

}  // namespace qkv
