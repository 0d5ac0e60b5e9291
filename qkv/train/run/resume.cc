#include "qkv/train/run/resume.h"

#include <fmt/format.h>

#include <array>

#include "qkv/base/parallel.h"
#include "qkv/data/table.h"

namespace qkv {
namespace {

// They say how far a run goes and how often it looks at itself, not what a step computes.
constexpr std::array<std::string_view, 3> kMayChange = {"train.steps", "train.eval_every", "train.patience"};

std::string key_of(const std::string& line) {
  return line.substr(0, line.find(" = "));
}

std::string value_of(const std::string& line) {
  const size_t at = line.find(" = ");
  return at == std::string::npos ? "" : line.substr(at + 3);
}

// The number that a fingerprint has at this key; `otherwise` where it lacks it.
int64_t number_in(const std::string& fingerprint, std::string_view key, int64_t otherwise) {
  for (const std::string& line : lines_of(fingerprint))
    if (key_of(line) == key) return std::stoll(value_of(line));
  return otherwise;
}

// The line as default_fingerprint() has it: [mix.NAME] for any data set, [model] for a kind of its blocks.
std::string as_in_defaults(std::string line) {
  constexpr std::string_view kMix = "mix.", kKind = "model.kind.";
  const auto end_of_name = [&](std::string_view section) {
    return line.starts_with(section) ? line.find('.', section.size()) : std::string::npos;
  };
  const size_t equals = line.find(" = ");
  if (const size_t dot = end_of_name(kMix); dot < equals)
    line.replace(kMix.size(), dot - kMix.size(), "NAME");
  else if (const size_t kind = end_of_name(kKind); kind < equals)
    line.replace(0, kind, "model");
  return line;
}

// Two lines of a fingerprint with one key, "training tokens = 100 (0ba9...)", for people.
std::string data_change(const std::string& before, const std::string& now) {
  const auto count = [](const std::string& line) {
    const std::string value = value_of(line);
    return value.substr(0, value.find(" ("));
  };
  const std::string key = key_of(before);
  const size_t colon = key.find(": ");  // the name of a data set comes first
  const std::string set = colon == std::string::npos ? "" : key.substr(0, colon + 2),
                    what = colon == std::string::npos ? key : key.substr(colon + 2);
  const bool tokens = what.ends_with(" tokens");
  const std::string text =
      tokens ? what.substr(0, what.size() - std::string_view("tokens").size()) + "text has" : what + " have";
  const std::string unit = tokens ? "tokens" : what;
  const std::string difference = count(before) == count(now)
                                     ? fmt::format("{} {} as before, but others", count(now), what)
                                     : fmt::format("{} {} then, {} now", count(before), unit, count(now));
  return fmt::format("{}the {} changed since the checkpoint ({})", set, text, difference);
}

// How the learning rate changes where a run is continued to another number of steps than `before`.
std::string schedule_text(const RunSetup& run, int64_t before) {
  const ScheduleConfig& s = run.config.step.schedule;
  const int64_t now = run.config.steps, done = run.state.step;
  if (s.name == "constant" || s.name == "inverse_sqrt")  // functions of the step alone
    return fmt::format("the schedule ({}) goes on as it is", s.name);
  const auto rate_at = [&](int64_t step, int64_t steps) {
    return learning_rate_at(s, std::clamp<int64_t>(step, 1, steps), steps);
  };
  return fmt::format(
      "the schedule ({}) is stretched over {} steps: the learning rate was {:.2e}, goes on at {:.2e} and "
      "ends at {:.2e}",
      s.name, now, rate_at(done, before), rate_at(done + 1, now), rate_at(now, now));
}

}  // namespace

std::string run_fingerprint(const TrainConfig& config, const Task& task) {
  return fingerprint(config) + fmt::format("compute = {}\n", name_of(config.compute())) + task.fingerprint();
}

void expect_same_run(const std::string& dir, const std::string& saved, const std::string& given) {
  std::vector<std::string> was = lines_of(saved), is;
  for (std::string& line : lines_of(given))
    if (const auto same = std::ranges::find(was, line); same != was.end())
      was.erase(same);
    else
      is.push_back(std::move(line));
  const std::vector<std::string> defaults = lines_of(default_fingerprint());
  for (const std::string& line : is) {
    const std::string key = key_of(line);
    const auto before = std::ranges::find(was, key, key_of);
    if (before == was.end()) {
      check(std::ranges::find(defaults, as_in_defaults(line)) != defaults.end(),
            "{}: the checkpoint was made without '{}': a run can only be resumed unchanged", dir, line);
      continue;
    }
    if (std::ranges::find(kMayChange, key) == kMayChange.end()) {
      if (line.ends_with(')')) fail("{}: {}", dir, data_change(*before, line));
      fail(
          "{}: the checkpoint was made with '{}', the configuration says '{}': a resumed run may change only "
          "steps, eval_every, patience and what is saved and logged; for another run set model.from",
          dir, *before, line);
    }
    was.erase(before);
  }
  check(was.empty(), "{}: the checkpoint was made with '{}': a run can only be resumed unchanged", dir,
        was.empty() ? "" : was.front());
}

void resume_from(const std::string& dir, RunSetup& run, Progress& progress) {
  TrainConfig& config = run.config;
  TrainerState saved = load_trainer_state(dir);
  find_steps(config, *run.task, config.batch == 0 ? saved.batch : config.windows_of_pass());
  const int64_t before = number_in(saved.fingerprint, "train.steps", config.steps);
  if (config.warmup_derived) {  // it is over, or goes on as it began
    ScheduleConfig& s = config.step.schedule;
    s.warmup_steps = number_in(saved.fingerprint, "train.warmup_steps", s.warmup_steps);
    config.warmup_derived = false;
  }
  const std::string now = run_fingerprint(config, *run.task);
  expect_same_run(dir, saved.fingerprint, now);
  check(config.steps > saved.step || config.steps == before,
        "{}: {} are done already: train.steps = {} leaves none", dir, counted(saved.step, "step"),
        config.steps);
  if (saved.threads != num_threads())
    progress.note(
        fmt::format("note: the checkpoint was made with {}, this run has {}: the last bits may differ",
                    counted(saved.threads, "thread"), num_threads()));
  run.state = std::move(saved);
  if (before == config.steps) return;
  run.state.fingerprint = now;
  progress.note(fmt::format("{}: step {} of {} now, of {} before: {}", config.out, run.state.step,
                            config.steps, before, schedule_text(run, before)));
}

}  // namespace qkv
