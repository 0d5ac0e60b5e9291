#include "qkv/train/run/recorder.h"

#include <fmt/format.h>

#include <cmath>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/base/machine.h"
#include "qkv/report/report.h"
#include "qkv/train/run/run_text.h"
#include "qkv/train/run/run_trace.h"
#include "qkv/train/tasks/baseline.h"

namespace qkv {
namespace {

double seconds_since(Recorder::Clock::time_point t) {
  return std::chrono::duration<double>(Recorder::Clock::now() - t).count();
}

// The start of a sample, as one line.
std::string shortened(std::string text) {
  constexpr size_t kMost = 240;
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' ' || c == 0x7F; }, ' ');
  if (text.size() <= kMost) return text;
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + " ...";
}

}  // namespace

void Recorder::introduce() {
  if (!writes_) return;
  for (const std::string& line : run_.task->notes()) note(line);
  note(summary_text(run_));
}

void Recorder::begin() {
  if (!writes_) return;
  start_ = second_step_ = Clock::now();
  first_ = run_.state.step;
  metrics_.emplace(run_.config.out, first_);
}

double Recorder::seconds() const {
  return seconds_since(start_);
}

void Recorder::step(const StepResult& result, Clock::time_point begun) {
  if (!writes_) return;
  const double now = static_cast<double>(result.tokens) / seconds_since(begun);
  tokens_per_second_ = tokens_per_second_ == 0 ? now : 0.9 * tokens_per_second_ + 0.1 * now;
  if (run_.state.step == first_ + 1) second_step_ = Clock::now();
  print_step(result);
  const int64_t step = run_.state.step;
  if (step % run_.config.log_every == 0 || step == run_.config.steps) write_step(result);
}

// The first step also pays for allocations and generated code, so it says little about the others.
std::string Recorder::time_left() const {
  const int64_t timed = run_.state.step - first_ - 1;
  if (timed == 0) return "";
  return duration_text(seconds_since(second_step_) / static_cast<double>(timed) *
                       static_cast<double>(run_.config.steps - run_.state.step)) +
         " left";
}

// The loss is smoothed; metrics.jsonl also has each step's own.
void Recorder::print_step(const StepResult& result) {
  std::vector<LinePart> parts = {
      {fmt::format("step {}/{}", run_.state.step, run_.config.steps), 6},
      {fmt::format("loss {:.4f}", run_.state.smoothed_loss), 4},
      {fmt::format("lr {:.2e}", result.learning_rate), 1},
      {fmt::format("{} tok/s", human_count(static_cast<int64_t>(tokens_per_second_))), 3},
      {memory_text(static_cast<double>(memory_use().peak)), 0}};
  constexpr int kBar = 9;  // with it, the line's most important parts fit into 60 columns
  if (progress_.terminal())
    parts.insert(
        parts.begin() + 1,
        {progress_bar(static_cast<double>(run_.state.step) / static_cast<double>(run_.config.steps), kBar),
         2});
  if (const std::string left = time_left(); !left.empty()) parts.push_back({left, 5});
  progress_.update(parts);
}

void Recorder::write_step(const StepResult& result) {
  const TrainerState& state = run_.state;
  metrics_->write(
      {{"step", state.step},
       {"loss", result.loss},
       {"smoothed_loss", state.smoothed_loss},
       {"lr", result.learning_rate},
       {"grad_norm", result.gradient_norm},
       {"tokens_per_second", std::round(tokens_per_second_)},
       {"memory_mb", std::round(static_cast<double>(memory_use().peak) / 1e6)},
       {"tokens", std::llround(static_cast<double>(state.step) * run_.task->tokens_a_step(state.batch))},
       {"seconds", seconds()}});
}

void Recorder::write_validation(const Evaluation& e) {
  if (!writes_) return;
  OrderedJson record = {{"step", run_.state.step}, {"valid_loss", e.loss()}};
  if (e.characters > 0) {
    record["valid_nats_per_character"] = e.nats_per_character();
    record["valid_bits_per_byte"] = e.bits_per_byte();
  }
  for (const auto& [name, value] : e.losses) record["valid_loss_" + name] = value;
  for (const auto& [name, value] : e.scores) record["valid_" + name] = value;
  record["valid_tokens"] = e.tokens;
  metrics_->write(record);
}

void Recorder::print_validation(const Evaluation& e, const ModelSpec& spec, bool best_so_far) {
  if (!writes_) return;
  note(fmt::format("step {}: validation loss {}{}{}", run_.state.step, run_.task->text(e),
                   best_so_far ? ", " + progress_.strong("the best so far") : "",
                   divergence_text(spec, e.loss())));
}

void Recorder::test(const std::optional<Evaluation>& e,
                    const std::vector<std::pair<std::string, double>>& baselines) {
  if (!writes_) return;
  OrderedJson record = {{"step", run_.state.step}};
  if (e) {
    for (const auto& [name, value] : e->scores) record["test_" + name] = value;
    note(fmt::format("test of the best model: loss {}", run_.task->text(*e)));
    write_evaluation("test", *e);
  }
  std::vector<std::string> others;
  for (const auto& [name, value] : baselines) {
    const char* score = baseline_score(name);
    others.push_back(fmt::format("{} {}{}", name,
                                 score == std::string_view("accuracy") ? "" : score_label(score) + " ",
                                 score_text(score, value)));
    record[baseline_key(name)] = value;
  }
  if (!others.empty()) note(fmt::format("baselines: {}", fmt::join(others, ", ")));
  if (record.size() > 1) metrics_->write(record);
}

void Recorder::write_evaluation(const char* part, const Evaluation& e) const {
  if (!writes_) return;
  if (e.scores.empty()) return;
  OrderedJson out = {{"of", part}, {"step", run_.state.step}, {"loss", e.loss()}};
  for (const auto& [name, value] : e.scores) out["scores"][name] = value;
  if (e.confusion.classes > 0) {
    out["labels"] = run_.config.model.labels;
    out["confusion"] = e.confusion.count;
  }
  if (!e.mistakes.empty()) {
    out["mistaken"] = e.mistaken;
    out["mistakes"] = mistakes_json(e.mistakes);
  }
  write_file_atomically(run_.config.out + "/evaluation.json", out.dump() + "\n");
}

void Recorder::samples(const Transformer& model) {
  if (!writes_) return;
  if (run_.config.sample_tokens == 0) return;
  for (const OrderedJson& sample : run_.task->samples(model)) {
    OrderedJson record = {{"step", run_.state.step}};
    record.update(sample);
    metrics_->write(record);
    if (progress_.terminal())
      note("  " + shortened(sample.value("prompt", std::string()) + sample.value("sample", std::string())));
  }
}

void Recorder::trace(const Transformer& model) {
  if (!writes_) return;
  const int64_t every = run_.config.trace_every, step = run_.state.step;
  if (every > 0 && (step % every == 0 || step == run_.config.steps)) write_run_trace(run_, model);
}

void Recorder::report() {
  if (!writes_) return;
  try {
    write_report(run_.config.out);
  } catch (const Error& e) {
    note(fmt::format("note: no report: {}", e.what()));
  }
}

}  // namespace qkv
