// What a run records while it trains: RUN/metrics.jsonl, and the same for TensorBoard in RUN/tensorboard.
//
// metrics.jsonl has one JSON object a line. Each has "step"; the other fields are numbers (of training steps:
// "loss", "smoothed_loss", "lr", "grad_norm", "tokens_per_second", "seconds" since the session's start,
// "memory_mb", ...; of validations: "valid_loss", "valid_nats_per_character", "valid_bits_per_byte", ...) or
// text ("sample" with the "prompt" that it continues).
#pragma once

#include <fstream>
#include <string>

#include "qkv/base/json.h"
#include "qkv/report/event_file.h"

namespace qkv {

// The records of one run, written as they come.
class Metrics {
 public:
  // Keeps what `run_dir` holds up to `step`: later steps will be done again. A line that a killed run left
  // unfinished is dropped.
  Metrics(const std::string& run_dir, int64_t step);

  // Text that is not UTF-8 is written with U+FFFD in place of what is invalid. REQUIRES: record["step"].
  void write(const OrderedJson& record);

 private:
  std::string path_;
  std::ofstream out_;
  EventFile events_;
  int64_t sample_step_ = -1;  // the step of the last sample,
  int sample_number_ = 0;     // and its number among that step's samples
};

// The TensorBoard tag of a numeric field: "lr" -> "train/learning_rate", "valid_loss" -> "valid/loss".
std::string tag_of_field(const std::string& field);

}  // namespace qkv
