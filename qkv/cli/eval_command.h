// qkv eval: its options, and what it does with each kind of model.
#pragma once

#include <string>

#include "qkv/api/text_model.h"
#include "qkv/data/masking.h"
#include "qkv/train/config.h"
#include "qkv/train/restored_text.h"

namespace qkv {

struct EvalOptions {
  std::string dir, data, target, separator, dtype = "f32";
  DataConfig columns;
  int64_t batch = 16, beams = 0, batch_tokens = 4096;
  Masking masking;
  Restoration restoration;
  uint64_t mask_seed = 0;
  bool json = false, strict = false;
};

// The text of --data, by the options that say which of it.
TokenStream stream_of(const EvalOptions& o, const TextModel& m);

// Refuses texts that were cut where o.strict. `what`: of them, so many.
void expect_uncut(const EvalOptions& o, const TextModel& m, int64_t cut, const char* what);

// Prints how well an encoder finds classes, tags, answers, or hidden tokens.
void eval_encoder(const EvalOptions& o, const TextModel& m);

}  // namespace qkv
