// Records of a training run: RUN/metrics.jsonl, and the same for TensorBoard in RUN/tensorboard.
//
// metrics.jsonl has one JSON object per line. Each has "step"; the other fields are numbers or text.
// Numbers of training steps: "loss", "smoothed_loss", "lr", "grad_norm", "tokens_per_second", "seconds"
// since the session's start, "memory_mb", .... Numbers of validations: "valid_loss",
// "valid_nats_per_character", "valid_bits_per_byte", .... Text: "sample" with the "prompt" that it
// continues.
#pragma once

#include <fstream>
#include <string>

#include "qkv/base/json.h"
#include "qkv/report/event_file.h"

namespace qkv {

// Writes the records of one run.
class Metrics {
 public:
  // Keeps the records in `run_dir` up to `step`, because later steps will be repeated. An incomplete line
  // from a killed run is dropped.
  Metrics(const std::string& run_dir, int64_t step);

  // Writes a record; invalid UTF-8 in text is replaced by U+FFFD. REQUIRES: record["step"].
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
