// The tasks, one file each. make_task() chooses among them.
#pragma once

#include "qkv/data/length_batches.h"
#include "qkv/infer/generate.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/tasks/task.h"

namespace qkv {

// Algorithm 13: windows of a text.
std::unique_ptr<Task> make_language_modelling(const TrainConfig& config, const Origin* given);
// Algorithm 12: texts with hidden tokens.
std::unique_ptr<Task> make_masked_language_modelling(const TrainConfig& config, const Origin* given);
// Algorithm 11: targets given their sources.
std::unique_ptr<Task> make_sequence_to_sequence(const TrainConfig& config, const Origin* given);
// Algorithm 11 on texts that were corrupted: T5's spans, BART's noise.
std::unique_ptr<Task> make_text_restoration(const TrainConfig& config, const Origin* given);
// What the assistant says in conversations.
std::unique_ptr<Task> make_chat(const TrainConfig& config, const Origin* given);
// Pairs of texts whose vectors should be near each other.
std::unique_ptr<Task> make_embedding(const TrainConfig& config, const Origin* given);
// Classes, tags and answers. `labels`: those of all data sets that are mixed; empty: what its own files have.
std::unique_ptr<Task> make_labelled(const TrainConfig& config, const Origin* given,
                                    const std::vector<std::string>& labels = {});
// Several data sets in turn, each with an objective of its own.
std::unique_ptr<Task> make_mixture(const TrainConfig& config, const Origin* given);

// What these train a tokenizer on.
std::vector<std::string> chat_texts(const TrainConfig& config, const Origin* given);
std::vector<std::string> embedding_texts(const TrainConfig& config);
std::vector<std::string> labelled_texts(const TrainConfig& config);
// The classes or tags of a configuration's examples; none of answers.
struct Labels {
  std::vector<std::string> taught, all;  // those of training; and those of validation and test, too
};
Labels labels_of_files(const TrainConfig& config);

// A task whose batches are sequences of like lengths, filled by tokens.
class TaskOfSequences : public Task {
 public:
  std::string step_text(int64_t batch) const override;
  int64_t largest_batch() const override { return config_.batch; }
  double tokens_a_step(int64_t batch) const override;
  double steps_per_epoch(int64_t batch) const override;
  std::vector<Batch> batches(int64_t step, int64_t batch) override;
  bool looks_at_all() const override { return true; }

 protected:
  using Task::Task;
  // Of the training items, before anything else is asked.
  void take_lengths(std::vector<int64_t> lengths);
  // What is learnt from these items: batch `index` of all, in this epoch, both from 0.
  virtual Batch training_batch(const std::vector<int64_t>& items, uint64_t index, uint64_t epoch) const = 0;
  // In one pass, as tokens_a_step() counts them.
  virtual int64_t training_tokens() const { return tokens_; }

 private:
  std::optional<LengthBatches> batches_;
  int64_t tokens_ = 0;
};

// How a task's sample is written.
GenerateOptions sample_options(const TrainConfig& config, const text::Tokenizer& tokenizer, int64_t vocab);

// What an encoder-decoder writes for a source, greedily: "prompt" and "sample".
OrderedJson sample_of_source(const TrainConfig& config, const text::Tokenizer& tokenizer,
                             const SequenceEnds& ends, const Transformer& model, std::vector<int32_t> source);

// Of a text that is read in pieces: what it holds, for people (`unknown`: Task::tell_unknown); and what tells
// it from others.
std::string summary_of(const TokenizedText& text, size_t pieces, const std::string& unknown, bool cached);
std::string fingerprint_of(const TokenizedText& text);

}  // namespace qkv
