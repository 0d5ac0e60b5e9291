// A training run as a TOML file: [data], [tokenizer], [model], [train].
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qkv/data/corruption.h"
#include "qkv/data/labelled.h"
#include "qkv/data/masking.h"
#include "qkv/data/text_file.h"
#include "qkv/models/spec.h"
#include "qkv/train/config/objective.h"
#include "qkv/train/optim/training_state.h"

namespace qkv {

// [data]: the texts.
struct DataConfig {
  std::vector<std::string> train;  // text files
  std::vector<std::string> valid;  // text files; empty: the last part of `train`
  double valid_fraction = 0.1;     // of the characters, taken from the end, where `valid` is empty
  std::string separator;           // divides a file into documents; empty: a file is one
  // Sequence to sequence: `train` and `valid` are files of rows with these columns, or texts beside these,
  // line by line.
  std::string source_column = "source", target_column = "target";
  std::vector<std::string> train_target, valid_target;
  std::string chat_template;  // file of how conversations are written
  std::string prefix;         // stands before each source, e.g. "translate: " (Raffel et al. 2020)
  // Classes, tags, answers: rows with these columns, or words in these (conll.h; 0: the format's own).
  std::string text_column = "text", second_column, label_column = "label";
  std::vector<std::string> columns;    // names of those of files without a header
  std::string format = "auto";         // of the files (text_file.h); auto: by their names
  std::string delimiter;               // of rows; empty: that of the format
  bool keep_carriage_returns = false;  // "\r\n" of texts does not become "\n"
  bool any_bytes = false;              // no key: the tokenizer has tokens for all bytes, and nothing else
  int64_t word_column = 0, tag_column = 0;
  std::vector<std::string> test;  // looked at once, at the end
  double test_fraction = 0;       // of the training files' examples, where `test` is empty
  // Cross-validation (Stone 1974): so many parts, each the test of a model that learns from the others; 0:
  // none. `fold`: the one that this run is tested by, from 1; 0: all, each a run of its own.
  int64_t folds = 0, fold = 0;
  // Of what is learnt from: of equal texts, pairs and texts of examples the first is kept; others than of so
  // many characters are left out (either side of a pair), and pairs whose one side is more than max_ratio
  // times as long as the other. 0: any.
  bool deduplicate = false;
  int64_t min_characters = 0, max_characters = 0;
  double max_ratio = 0;
  uint64_t split_seed = 1;  // of which examples are taken for validation and test
  bool cache = true;        // keep the tokens of a text for the next run (corpus.h)

  bool operator==(const DataConfig&) const = default;
};

// [tokenizer]: an existing one, or how to train one.
struct TokenizerConfig {
  std::string path;          // an existing tokenizer; empty: train one
  std::string source_path;   // another for sources, beside `path`
  bool separate = false;     // train one for sources and one for targets
  std::string type = "bpe";  // bpe, wordpiece, unigram, sentencepiece_bpe, char, byte or word
  bool lowercase = true;     // of wordpiece: without case and accents
  int64_t vocab_size = 4096;
  int64_t min_frequency = 2;
  std::vector<std::string> add_special;  // special tokens that the tokenizer gets in addition
};

// [mix.NAME]: one of several data sets that a run learns from.
struct MixedSet {
  std::string name;
  Objective objective = Objective::next_token;
  double weight = 1;     // how often a micro-batch is of this set, in proportion to the others' weights
  DataConfig data = {};  // its files: train, valid, their columns and their prefix
};

// A whole run.
struct TrainConfig {
  DataConfig data;
  std::vector<MixedSet> mix;  // instead of data's files
  TokenizerConfig tokenizer;
  std::string from;  // a model or a run whose weights a run begins with
  Objective objective = Objective::next_token;
  Masking masking;                                 // of the masked objective
  SpanCorruption spans;                            // of span_corruption
  Denoising noise;                                 // of denoise
  Augmentation augmentation;                       // of classes and tags
  std::string preset, size;                        // what [model] was filled with (presets.h)
  ModelSpec model = gpt2_spec(0, 256, 384, 6, 6);  // vocab_size 0 until the tokenizer is known
  StepConfig step;
  std::string out = "runs/model";
  int64_t steps = 1000;
  double epochs = 0;            // passes over the training data that `steps` is found from; 0: it is given
  int64_t batch = 16;           // windows of a micro-batch; 0: as many as fit into memory
  int64_t window = 0;           // tokens of a window of a text; 0: the model's context
  int64_t batch_tokens = 4096;  // of a micro-batch of sequences whose lengths differ
  int64_t accumulate = 1;       // micro-batches of a step
  uint64_t seed = 1;
  std::string precision = "auto";  // f32, bf16, or auto: bf16 where the processor gains from it
  bool recompute = false;          // activation checkpointing
  double memory_gb = 0;            // what a run may take; 0: what is free
  int64_t log_every = 10;
  int64_t eval_every = 250;
  int64_t eval_windows = 64;     // of the validation text, for the evaluations on the way; 0: all
  int64_t eval_bleu = 0;         // validation pairs that are translated at each evaluation; 0: none
  std::string best_by = "auto";  // the score that tells the best model
  int64_t patience = 0;          // evaluations without a better one after which the run stops; 0: never
  int64_t checkpoint_every = 500;
  int64_t keep = 1;             // checkpoints kept besides the best model
  int64_t sample_tokens = 100;  // of a text written at each evaluation, for the report; 0: none
  std::string sample_prompt;    // what it continues; empty: the start of the validation text

  // Whether the warm-up follows from the steps, and its part of them; none: 100, or a tenth where less.
  bool warmup_derived = false;
  std::optional<double> warmup_fraction;

  DType compute() const;  // of precision, on this processor
  int64_t window_length() const { return window > 0 ? window : model.context; }
};

// Reads `path` and applies overrides ("train.steps=10"). Unknown or mistyped keys and values out of range are
// UsageErrors that name file, line and key.
TrainConfig read_train_config(const std::string& path, const std::vector<std::string>& overrides);
// The same of a text; `name` stands for the file in errors.
TrainConfig parse_train_config(const std::string& text, const std::string& name,
                               const std::vector<std::string>& overrides);
// True where a file can be read as TOML.
bool is_toml(const std::string& path);

// What the config.toml of the run in `dir`, or of the run that this checkpoint belongs to, says of data and
// training. [tokenizer] and [model] are left at their defaults, and no file that it names is looked for.
// Nothing where there is no such file. Throws Error naming file, line and key as read_train_config() does.
struct RunConfig {
  std::string path;
  TrainConfig config;
};
std::optional<RunConfig> read_run_config(const std::string& dir);

// Sets the number of steps, and the warm-up where it follows from that.
void set_steps(TrainConfig& config, int64_t steps);

// Every setting as TOML, defaults included: what read_train_config() reads back as the same configuration.
std::string to_toml(const TrainConfig& config);

// The part of it that decides what a run computes: a run is resumed only with the same.
std::string fingerprint(const TrainConfig& config);
// The same of a configuration that says nothing, with one data set [mix.NAME].
std::string default_fingerprint();

// Every key with its default, its range and what it means, for people.
std::string train_config_help();

}  // namespace qkv
