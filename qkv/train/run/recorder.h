// The records of a run: the console, metrics.jsonl and TensorBoard's events, evaluation.json, report.html.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qkv/base/progress.h"
#include "qkv/optim/training_state.h"
#include "qkv/report/metrics_file.h"
#include "qkv/train/run/run_setup.h"

namespace qkv {

// Writes what happens at the step where the run stands. Each throws Error where a file cannot be written.
class Recorder {
 public:
  using Clock = std::chrono::steady_clock;

  // Both must outlive this. `writes`: false on ranks that leave all records to the first; calls then do
  // nothing.
  Recorder(const RunSetup& run, Progress& progress, bool writes = true)
      : run_(run), progress_(progress), writes_(writes) {}

  // The first lines: notes about the data, and a summary.
  void introduce();
  // Opens metrics.jsonl, without the records of steps that will be done again. The calls below require it.
  void begin();

  // A step, begun at this time, that ends now.
  void step(const StepResult& result, Clock::time_point begun);
  // The losses and scores of a validation, in metrics.jsonl; and in a line.
  void write_validation(const Evaluation& e);
  void print_validation(const Evaluation& e, const ModelSpec& spec, bool best_so_far);
  // The best model on the examples that were kept for the end, and the accuracies of simple methods there.
  void test(const std::optional<Evaluation>& e, const std::vector<std::pair<std::string, double>>& baselines);
  // evaluation.json: scores and confusions, for the report. `part`: of the data; "validation" or "test".
  void write_evaluation(const char* part, const Evaluation& e) const;
  // Texts that the model writes, where the configuration wants any.
  void samples(const Transformer& model);

  // A small trace of the model, where the configuration wants one at this step.
  void trace(const Transformer& model);

  // report.html; one that cannot be made is a note, for it must not end a run.
  void report();

  void note(const std::string& line) { progress_.note(line); }
  // Seconds since begin().
  double seconds() const;

 private:
  void print_step(const StepResult& result);
  void write_step(const StepResult& result);
  std::string time_left() const;

  const RunSetup& run_;
  Progress& progress_;
  bool writes_;
  std::optional<Metrics> metrics_;
  Clock::time_point start_ = {}, second_step_ = {};
  int64_t first_ = 0;  // steps done before begin()
  double tokens_per_second_ = 0;
};

}  // namespace qkv
