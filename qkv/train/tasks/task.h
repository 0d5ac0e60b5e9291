// What a run learns: where its batches come from, how it is judged, what it shows of itself.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "qkv/base/json.h"
#include "qkv/text/tokenizer.h"
#include "qkv/train/config/config.h"
#include "qkv/train/corpora/origin.h"
#include "qkv/train/tasks/evaluate.h"

namespace qkv {

// A tokenized data set with its objective.
class Task {
 public:
  virtual ~Task() = default;

  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  // For people: lines about how the files were read, e.g. "warning: ...".
  virtual Notes notes() const { return notes_; }
  // For people: what the data holds, and what a step takes of it.
  virtual std::string data_text() const = 0;
  virtual std::string step_text(int64_t batch) const = 0;
  // What tells these tokens from others: a run is resumed only with the same.
  virtual std::string fingerprint() const = 0;
  // The largest batch worth having: one pass over the data.
  virtual int64_t largest_batch() const = 0;

  // Throws Error where the data do not suffice for this one.
  virtual void expect_batch(int64_t /*batch*/) const {}

  // Tokens that a step reads, or predicts where there is a source; of batches that differ, their mean.
  virtual double tokens_a_step(int64_t batch) const = 0;
  // Steps that one pass over the training data takes; 0: data sets that are mixed have passes of their own.
  virtual double steps_per_epoch(int64_t /*batch*/) const { return 0; }
  // The micro-batches of a step, counted from 1: a function of (seed, step).
  virtual std::vector<Batch> batches(int64_t step, int64_t batch) = 0;
  // Of the validation data: all, or the part that is looked at on the way.
  virtual Evaluation evaluate(const Transformer& model, int64_t batch, bool all) const = 0;
  virtual bool looks_at_all() const = 0;  // on the way, too
  // Of what was kept aside for the end; nothing where nothing was.
  virtual std::optional<Evaluation> test(const Transformer& /*model*/) const { return std::nullopt; }
  // The accuracies of simple methods on the same examples, by name.
  virtual std::vector<std::pair<std::string, double>> baselines() const { return {}; }
  // The score that tells the best model where the configuration names none.
  virtual std::string best_by() const { return "loss"; }
  // An evaluation for people.
  virtual std::string text(const Evaluation& e) const;
  // Of the classes that the model tells apart.
  virtual std::vector<std::string> labels() const { return {}; }
  // How conversations are written, where the model that the run begins with does not say it so; and tokens
  // that end what the model says in them.
  virtual std::string chat_template() const { return {}; }
  virtual std::vector<int64_t> ends() const { return {}; }
  // Something that the model writes, for people to read: "prompt" and "sample".
  virtual OrderedJson sample(const Transformer& model) const = 0;
  // One of each data set.
  virtual std::vector<OrderedJson> samples(const Transformer& model) const;

 protected:
  // For people: " (1.2% unknown)" of the tokens of training, or nothing; where they are many, also a warning
  // among the notes.
  std::string tell_unknown(int64_t unknown, int64_t tokens);
  // Counts the tokens that stand for what the vocabulary lacks.
  int64_t count_unknown(std::span<const int32_t> ids) const;

  Task(const TrainConfig& config, text::Tokenizer tokenizer)
      : config_(config), tokenizer_(std::move(tokenizer)) {}
  TrainConfig config_;
  text::Tokenizer tokenizer_;
  Notes notes_;
};

// The task of a configuration: by its objective. `given`: what a run that is resumed goes on from; null: the
// model that the configuration names, if any.
std::unique_ptr<Task> make_task(const TrainConfig& config, const Origin* given);

// Completes the model by what its data say: vocabularies, classes, the linear layers that LoRA adapts.
void complete_model(TrainConfig& config, const Task& task);
// Finds the steps from train.epochs, where that is given.
void find_steps(TrainConfig& config, const Task& task, int64_t batch);

}  // namespace qkv
