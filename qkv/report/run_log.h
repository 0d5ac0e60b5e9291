// What a run has recorded, read back: RUN/metrics.jsonl, RUN/config.toml and the size of its model.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qkv/report/chart.h"

namespace qkv {

// A text that the model wrote after a step.
struct Sample {
  int64_t step;
  std::string prompt, text;  // `text` continues `prompt`
};

// What OUT/evaluation.json says of the best model.
struct RunScores {
  std::string of;  // "validation" or "test"
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> scores;  // "accuracy", 0.9
  std::vector<std::string> labels;                     // of the confusion
  std::vector<int64_t> confusion;  // row by row: count[right labels + found]; may be empty
};

// All of a run that a report is made from.
struct RunLog {
  std::string dir;
  std::map<std::string, std::vector<Point>> series;           // numeric fields by name: value over step
  std::optional<RunScores> best;                              // nothing before a first evaluation
  std::vector<Sample> samples;                                // in the order of steps
  std::vector<std::pair<std::string, std::string>> settings;  // "model.width", "256", in the file's order
  int64_t parameters = 0;                                     // 0: there is no model yet
  int64_t step = 0;                                           // the last one recorded
  double seconds = 0;                                         // training time of all sessions

  // A field's values; null where none has been recorded.
  const std::vector<Point>* find(const std::string& field) const;
  // The value of a setting; `otherwise` where it is absent.
  std::string setting(const std::string& key, const std::string& otherwise) const;
};

// Throws Error naming file and line where a record is damaged. A last line without an end is the one that a
// running or killed process has not finished: it is left out.
RunLog read_run_log(const std::string& run_dir);

}  // namespace qkv
