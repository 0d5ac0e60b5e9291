// The tasks, one file each. make_task() chooses among them.
#pragma once

#include "qkv/data/length_batches.h"
#include "qkv/infer/generate.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/tasks/task.h"

namespace qkv {

// Algorithm 13: windows of a text.
std::unique_ptr<Task> make_language_modelling(const TrainConfig& config, const Origin* given);
// Algorithm 12: texts with masked tokens.
std::unique_ptr<Task> make_masked_language_modelling(const TrainConfig& config, const Origin* given);
// Algorithm 11: targets given their sources.
std::unique_ptr<Task> make_sequence_to_sequence(const TrainConfig& config, const Origin* given);
// Algorithm 11 on corrupted texts: T5's spans, BART's noise.
std::unique_ptr<Task> make_text_restoration(const TrainConfig& config, const Origin* given);
// The assistant's messages in conversations.
std::unique_ptr<Task> make_chat(const TrainConfig& config, const Origin* given);
// Pairs of texts that should get similar vectors.
std::unique_ptr<Task> make_embedding(const TrainConfig& config, const Origin* given);
// Classes, tags and answers. `labels`: those of all mixed datasets; empty: those of its own files.
std::unique_ptr<Task> make_labelled(const TrainConfig& config, const Origin* given,
                                    const std::vector<std::string>& labels = {});
// A mixture of several datasets, each with its own objective.
std::unique_ptr<Task> make_mixture(const TrainConfig& config, const Origin* given);

// Texts on which these tasks train a tokenizer.
std::vector<std::string> chat_texts(const TrainConfig& config, const Origin* given);
std::vector<std::string> embedding_texts(const TrainConfig& config);
std::vector<std::string> labelled_texts(const TrainConfig& config);
// The classes or tags of a configuration's examples; for answers there are none.
struct Labels {
  std::vector<std::string> taught, all;  // taught: in training; all: in validation and test, too
};
Labels labels_of_files(const TrainConfig& config);

// A task whose batches hold sequences of similar lengths, up to a number of tokens.
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
  // Sets the lengths of the training items. Call before all other functions.
  void take_lengths(std::vector<int64_t> lengths);
  // The batch of these items: batch `index` of all, in this epoch, both from 0.
  virtual Batch training_batch(const std::vector<int64_t>& items, uint64_t index, uint64_t epoch) const = 0;
  // Tokens in one pass, as tokens_a_step() counts them.
  virtual int64_t training_tokens() const { return tokens_; }

 private:
  std::optional<LengthBatches> batches_;
  int64_t tokens_ = 0;
};

// Options for writing a task's sample.
GenerateOptions sample_options(const TrainConfig& config, const text::Tokenizer& tokenizer, int64_t vocab);

// Greedy output of an encoder-decoder for a source: "prompt" and "sample".
OrderedJson sample_of_source(const TrainConfig& config, const text::Tokenizer& tokenizer,
                             const SequenceEnds& ends, const Transformer& model, std::vector<int32_t> source);

// Summary, to print, of a text that is read in pieces (`unknown`: from Task::tell_unknown), and its
// fingerprint.
std::string summary_of(const TokenizedText& text, size_t pieces, const std::string& unknown, bool cached);
std::string fingerprint_of(const TokenizedText& text);

}  // namespace qkv
