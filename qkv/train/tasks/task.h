// Training tasks: their batches, evaluation and samples.
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

// A tokenized dataset with its objective.
class Task {
 public:
  virtual ~Task() = default;

  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  // Lines to print about reading the files, e.g. "warning: ...".
  virtual Notes notes() const { return notes_; }
  // Text that describes the data, and the part of them that a step takes.
  virtual std::string data_text() const = 0;
  virtual std::string step_text(int64_t batch) const = 0;
  // Identifies the tokens: a run resumes only with the same fingerprint.
  virtual std::string fingerprint() const = 0;
  // The largest useful batch: one pass over the data.
  virtual int64_t largest_batch() const = 0;

  // Throws Error if the data do not suffice for this batch.
  virtual void expect_batch(int64_t /*batch*/) const {}

  // Tokens that a step reads or, if there are sources, predicts. The mean if batches differ.
  virtual double tokens_a_step(int64_t batch) const = 0;
  // Steps of one pass over the training data; 0: the mixed datasets have separate passes.
  virtual double steps_per_epoch(int64_t /*batch*/) const { return 0; }
  // The micro-batches of a step, from 1: a function of (seed, step).
  virtual std::vector<Batch> batches(int64_t step, int64_t batch) = 0;
  // Evaluates the model on the validation data: all, or the part that is used during training. Ranks call it
  // together, and divide the work.
  virtual Evaluation evaluate(const Transformer& model, int64_t batch, bool all,
                              Communicator& ranks) const = 0;
  virtual bool looks_at_all() const = 0;  // true if that part is everything
  // Evaluates the model on the test data; nothing if there are none.
  virtual std::optional<Evaluation> test(const Transformer& /*model*/) const { return std::nullopt; }
  // The accuracies of simple methods on the same examples, by name.
  virtual std::vector<std::pair<std::string, double>> baselines() const { return {}; }
  // The score that selects the best model if the configuration names none.
  virtual std::string best_by() const { return "loss"; }
  // An evaluation as text.
  virtual std::string text(const Evaluation& e) const;
  // Labels of the model's classes.
  virtual std::vector<std::string> labels() const { return {}; }
  // The template of conversations, empty if the model that the run starts from has it; and the tokens that
  // end the assistant's messages.
  virtual std::string chat_template() const { return {}; }
  virtual std::vector<int64_t> ends() const { return {}; }
  // The first validation tokens, as a sample begins with them; empty: the task is of no running text.
  virtual std::vector<int32_t> opening(int64_t /*count*/) const { return {}; }
  // A sample of the model's output: "prompt" and "sample".
  virtual OrderedJson sample(const Transformer& model) const = 0;
  // One sample for each dataset.
  virtual std::vector<OrderedJson> samples(const Transformer& model) const;

 protected:
  // Returns " (1.2% unknown)" for the training tokens, or "". Adds a warning to the notes if there are
  // many.
  std::string tell_unknown(int64_t unknown, int64_t tokens);
  // Counts unknown tokens.
  int64_t count_unknown(std::span<const int32_t> ids) const;

  Task(const TrainConfig& config, text::Tokenizer tokenizer)
      : config_(config), tokenizer_(std::move(tokenizer)) {}
  TrainConfig config_;
  text::Tokenizer tokenizer_;
  Notes notes_;
};

// The task of a configuration, by its objective. `given`: the checkpoint of a resumed run; null: the model
// that the configuration names, if any.
std::unique_ptr<Task> make_task(const TrainConfig& config, const Origin* given);

// Completes the model from the data: vocabularies, classes, the linear layers that LoRA adapts.
void complete_model(TrainConfig& config, const Task& task);
// Sets the steps from train.epochs if that is given.
void find_steps(TrainConfig& config, const Task& task, int64_t batch);

}  // namespace qkv
