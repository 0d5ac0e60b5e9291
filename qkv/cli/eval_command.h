// qkv eval: its options, and what it does with each kind of model.
#pragma once

#include <string>

#include "qkv/api/text_model.h"
#include "qkv/data/masking.h"
#include "qkv/train/config.h"

namespace qkv {

struct EvalOptions {
  std::string dir, data, target, separator, dtype = "f32";
  DataConfig columns;
  int64_t batch = 16, beams = 0, batch_tokens = 4096;
  Masking masking;
  uint64_t mask_seed = 0;
  bool json = false;
};

// Prints how well an encoder finds classes, tags, answers, or hidden tokens.
void eval_encoder(const EvalOptions& o, const TextModel& m);

}  // namespace qkv
