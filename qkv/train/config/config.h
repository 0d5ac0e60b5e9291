// A training run as a TOML file: [data], [tokenizer], [model], [train].
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "qkv/data/corruption.h"
#include "qkv/data/labelled.h"
#include "qkv/data/masking.h"
#include "qkv/data/text_file.h"
#include "qkv/models/spec.h"
#include "qkv/optim/training_state.h"
#include "qkv/train/config/objective.h"

namespace qkv {

namespace text {
class Tokenizer;
}

// [data]: the texts.
struct DataConfig {
  std::vector<std::string> train;  // text files
  std::vector<std::string> valid;  // text files; empty: split off from `train`
  double valid_fraction = 0.1;     // share of characters, pairs or examples split off if `valid` is empty
  std::string separator;           // separates documents in a file; empty: each file is one document
  // Sequence to sequence: `train` and `valid` are files of rows with these columns, or source texts,
  // parallel by line to the target files.
  std::string source_column = "source", target_column = "target";
  std::vector<std::string> train_target, valid_target;
  std::string chat_template;  // file with the template that formats conversations
  std::string prefix;         // placed before each source, e.g. "translate: " (Raffel et al. 2020)
  // Classes, tags, answers: rows with these columns, or words in word_column and tag_column (conll.h; 0:
  // the format's default).
  std::string text_column = "text", second_column, label_column = "label";
  std::string label_separator = ",";  // between the labels of a text that has several
  // Multiple choice: a column whose cells are JSON lists of choices, or a column of each choice.
  std::vector<std::string> choice_columns = {"choices"};
  std::vector<std::string> columns;    // column names of files without a header
  std::string format = "auto";         // file format (text_file.h); auto: by file name
  std::string delimiter;               // column delimiter; empty: that of the format
  bool keep_carriage_returns = false;  // do not convert "\r\n" in texts to "\n"
  bool any_bytes = false;              // not a key; true if the tokenizer's tokens are exactly all bytes
  int64_t word_column = 0, tag_column = 0;
  std::vector<std::string> test;  // files evaluated once, at the end
  double test_fraction = 0;       // share of the training examples for testing if `test` is empty
  // Cross-validation (Stone 1974): number of folds; 0: none. `fold`: the fold that tests this run, from 1;
  // 0: one run for each fold.
  int64_t folds = 0, fold = 0;
  // Filters of the training data. deduplicate keeps the first of equal texts, pairs or example texts. The
  // character bounds hold for documents and for each side of a pair. The longer side of a pair may be at
  // most max_ratio times as long as the other. Bounds of 0 have no effect.
  bool deduplicate = false;
  int64_t min_characters = 0, max_characters = 0;
  double max_ratio = 0;
  uint64_t split_seed = 1;  // random seed of the validation and test split
  bool cache = true;        // keep the tokens of a text for the next run (corpus.h)

  bool operator==(const DataConfig&) const = default;
};

// [tokenizer]: an existing tokenizer, or how to train one.
struct TokenizerConfig {
  std::string path;          // an existing tokenizer; empty: train one
  std::string source_path;   // a second tokenizer for sources; `path` is then for targets
  bool separate = false;     // train one tokenizer for sources and one for targets
  std::string type = "bpe";  // bpe, wordpiece, unigram, sentencepiece_bpe, char, byte or word
  bool lowercase = true;     // wordpiece: remove case and accents
  int64_t vocab_size = 4096;
  int64_t min_frequency = 2;
  std::vector<std::string> add_special;                 // special tokens to add
  std::shared_ptr<const text::Tokenizer> trained = {};  // by another rank: to be used instead of training one
};

// [mix.NAME]: one of several datasets that a run trains on.
struct MixedSet {
  std::string name;
  Objective objective = Objective::next_token;
  double weight = 1;     // how often a micro-batch comes from this set, relative to the other weights
  DataConfig data = {};  // its files, columns and prefix
};

// A whole run.
struct TrainConfig {
  DataConfig data;
  std::vector<MixedSet> mix;  // replaces data's files
  TokenizerConfig tokenizer;
  std::string from;  // model or run whose weights this run starts from
  std::string part;  // stack of that model to take, "encoder" or "decoder"; empty: all of it
  Objective objective = Objective::next_token;
  Masking masking;                                 // for the masked objective
  SpanCorruption spans;                            // for span_corruption
  Denoising noise;                                 // for denoise
  Augmentation augmentation;                       // for classify and tag
  std::string preset, size;                        // sources of [model]'s defaults (presets.h)
  ModelSpec model = gpt2_spec(0, 256, 384, 6, 6);  // vocab_size is 0 until the tokenizer is known
  StepConfig step;
  std::string out = "runs/model";
  int64_t steps = 1000;
  double epochs = 0;                 // passes over the training data, which set `steps`; 0: `steps` is given
  int64_t batch = 16;                // windows per micro-batch, or of all shards; 0: as many as fit in memory
  int64_t window = 0;                // tokens per window; 0: the model's context
  int64_t batch_tokens = 4096;       // the same in tokens, for sequences of different lengths
  int64_t accumulate = 1;            // micro-batches per optimizer step (gradient accumulation)
  int64_t shards = 1;                // parts of a step's batch, for several ranks: a power of two
  bool zero = false;                 // divide the optimizer's state and f32 weights among the ranks
  std::string shard_order = "tree";  // in which their gradients add up; "any": as they come
  uint64_t seed = 1;
  std::string precision = "auto";  // f32, bf16, or auto: bf16 if the processor is faster with it
  bool recompute = false;          // activation checkpointing
  double memory_gb = 0;            // memory limit of the run; 0: the free memory
  int64_t log_every = 10;
  int64_t eval_every = 250;
  int64_t eval_windows = 64;     // validation windows per evaluation during training; 0: all
  int64_t eval_bleu = 0;         // validation pairs to translate at each evaluation; 0: none
  std::string best_by = "auto";  // the score that selects the best model
  int64_t patience = 0;          // early stopping after this many evaluations without improvement; 0: never
  int64_t checkpoint_every = 500;
  int64_t keep = 1;             // checkpoints kept besides the best model
  int64_t sample_tokens = 100;  // length of the sample text at each evaluation, for the report; 0: none
  std::string sample_prompt;    // prompt of the sample; empty: the start of the validation text

  int64_t trace_every = 0;  // steps between small traces of heads and layers, for the report; 0: none

  // True if the warm-up depends on the steps, and its share of them; none: 100 steps, or a tenth of all if
  // that is less.
  bool warmup_derived = false;
  std::optional<double> warmup_fraction;

  DType compute() const;  // the type for `precision` on this processor
  int64_t window_length() const { return window > 0 ? window : model.context; }
  // Forward and backward passes of a step, and the tokens of one: a shard is a pass.
  int64_t passes() const { return shards > 1 ? shards : accumulate; }
  int64_t windows_of_pass() const { return batch / shards; }  // 0: as many as fit
  int64_t tokens_of_pass() const { return std::max<int64_t>(1, batch_tokens / shards); }
};

// Reads `path` and applies overrides ("train.steps=10"). Unknown or mistyped keys and values out of range are
// UsageErrors that name file, line and key.
TrainConfig read_train_config(const std::string& path, const std::vector<std::string>& overrides);
// The same for a text; errors call it `name`.
TrainConfig parse_train_config(const std::string& text, const std::string& name,
                               const std::vector<std::string>& overrides);
// True if the file can be parsed as TOML.
bool is_toml(const std::string& path);

// Reads [data] and [train] from the config.toml of the run in `dir`, or of the run that the checkpoint
// `dir` belongs to. Leaves [tokenizer] and [model] at their defaults, and looks for none of the files that
// it names. Returns nothing if there is no config.toml. Throws Error naming file, line and key as
// read_train_config() does.
struct RunConfig {
  std::string path;
  TrainConfig config;
};
std::optional<RunConfig> read_run_config(const std::string& dir);

// Sets the number of steps, and the warm-up if that depends on it.
void set_steps(TrainConfig& config, int64_t steps);

// Every setting as TOML, defaults included. read_train_config() reads it back as the same configuration.
std::string to_toml(const TrainConfig& config);

// The settings that decide what a run computes: a run resumes only with the same fingerprint.
std::string fingerprint(const TrainConfig& config);
// The fingerprint of an empty configuration with one dataset [mix.NAME].
std::string default_fingerprint();

}  // namespace qkv
