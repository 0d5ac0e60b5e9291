// qkv eval: its options, and its actions for each kind of model.
#pragma once

#include <functional>
#include <string>

#include "qkv/api/text_model.h"
#include "qkv/base/json.h"
#include "qkv/data/masking.h"
#include "qkv/train/config/config.h"
#include "qkv/train/tasks/denoising.h"
#include "qkv/train/tasks/evaluate.h"

namespace qkv {

struct EvalOptions {
  std::string dir, data, target, separator, dtype = "f32";
  DataConfig columns;
  int64_t batch = 16, beams = 0, batch_tokens = 4096;
  Masking masking;
  Restoration restoration;
  std::string objective;  // objective of a model that restores texts; empty: evaluate pairs
  double span_length = SpanCorruption().mean_length;
  bool keep_order = false;
  uint64_t mask_seed = 0;
  std::string bleu_tokenize = "auto";
  int64_t errors = 0;  // number of mistakes to list
  bool json = false, strict = false;
};

// Fills settings that no option gives (columns, separator, objective, masking, corruption) from the
// configuration of the run that o.dir is or belongs to. `given`: true if an option ("--separator") was
// given.
void take_settings_of_run(EvalOptions& o, const ModelSpec& spec,
                          const std::function<bool(const char*)>& given);

// Tokens of the text of --data, by the options that select it.
TokenStream stream_of(const EvalOptions& o, const TextModel& m);

// With o.strict, throws Error if `cut` of the texts were truncated. `what` names the texts.
void expect_uncut(const EvalOptions& o, const TextModel& m, int64_t cut, const char* what);

// Prints how well an encoder finds classes, tags, answers, or masked tokens.
void eval_encoder(const EvalOptions& o, const TextModel& m);

// Prints the loss of targets given their sources, and how the model's own outputs compare with them.
void eval_pairs(const EvalOptions& o, const TextModel& m);

// One object as a line, with its line end.
std::string json_text(const OrderedJson& json);

// Lines for the loss, the perplexity and, if characters are known, nats per character and bits per byte.
// `of` follows the number of tokens.
std::string losses_text(const Evaluation& e, const char* of);

}  // namespace qkv
