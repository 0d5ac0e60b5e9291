// The keys of a configuration, in one list for reading, writing, the fingerprint and the help text.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "qkv/models/spec_schema.h"
#include "qkv/train/config/config.h"

namespace qkv {

// Objectives that read a key; empty: all do.
struct ReadBy {
  std::vector<Objective> objectives = {};
  bool loosely = false;  // a key in the file is no error if --set gives another objective

  bool any_of(const std::vector<Objective>& others) const {
    return objectives.empty() || std::ranges::find_first_of(objectives, others) != objectives.end();
  }
};

// Describes a key.
struct Key {
  const char* name;
  const char* help;
  const char* derived = nullptr;  // its default, if that depends on other keys
  bool decides = true;            // true if it affects what the run computes
  ReadBy read_by = {};            // all other objectives reject it
};

// A key that these objectives read.
inline Key of(std::vector<Objective> objectives, Key key) {
  key.read_by.objectives = std::move(objectives);
  return key;
}
inline Key loosely_of(std::vector<Objective> objectives, Key key) {
  key = of(std::move(objectives), key);
  key.read_by.loosely = true;
  return key;
}

// Groups of objectives by the data that they read.
struct Objectives {
  using enum Objective;
  // Plain texts.
  static inline const std::vector<Objective> kTexts = {next_token,      masked,  permutation,
                                                       span_corruption, denoise, prefix_lm};
  // Texts, or pairs of them.
  static inline const std::vector<Objective> kTextsAndPairs = {
      next_token, masked, permutation, sequence_to_sequence, span_corruption, denoise, prefix_lm};
  // Examples with labels.
  static inline const std::vector<Objective> kLabelled = {classify,        multi_label, regression,
                                                          multiple_choice, tag,         answer};
  // Targets that are tokens or classes. Spans and pairs of vectors have other losses.
  static inline const std::vector<Objective> kClasses = {
      next_token, masked,   permutation, sequence_to_sequence, span_corruption, denoise, prefix_lm,
      chat,       classify, tag};
};
using Choices = std::vector<std::string>;
// Range of counts.
inline constexpr Range<int64_t> kCount = {1, 1'000'000'000};
// Range of counts that may be 0.
inline constexpr Range<int64_t> kCountOrNone = {0, 1'000'000'000};

// The keys that name the training files and say how to read them.
template <typename Visitor>
void visit_files(DataConfig& d, Visitor& v) {
  using enum Objective;
  v({"train", "training files: one path or a list", "(needed)"}, d.train);
  v({"valid",
     "validation files (empty: qkv splits them off train: the end of a text, the last pairs, or examples "
     "drawn by split_seed)"},
    d.valid);
  v({"valid_fraction", "share of characters, pairs or examples split off for validation when valid is empty"},
    d.valid_fraction, Range<double>{0, 0.9});
  v(of(Objectives::kTexts,
       {"separator", "string that separates documents in a text file, e.g. \"<|endoftext|>\""}),
    d.separator);
  v(of({sequence_to_sequence},
       {"train_target",
        "target-language files, line by line with train (empty: train has rows with both sides)"}),
    d.train_target);
  v(of({sequence_to_sequence}, {"valid_target", "target-language files of the validation set"}),
    d.valid_target);
  v(of({sequence_to_sequence}, {"source_column", "column with the source text"}), d.source_column);
  v(of({sequence_to_sequence}, {"target_column", "column with the target text"}), d.target_column);
  v(of({sequence_to_sequence}, {"prefix", "text placed before each source, e.g. \"translate: \""}), d.prefix);
  v(of({next_token, masked, permutation, span_corruption, denoise, prefix_lm, classify, multi_label,
        regression, multiple_choice, tag, embed, answer},
       {"text_column",
        "column with the text (classify), the question (answer, multiple_choice) or the words (tag, .jsonl)",
        "\"text\" (\"question\" for answer and multiple_choice, \"tokens\" for tag)"}),
    d.text_column);
  v(of({classify, multi_label, regression, multiple_choice, embed, answer},
       {"second_column",
        "column with the second text of a pair (classify, embed), the context (answer) or the text before "
        "each choice (multiple_choice)",
        "none (\"context\" for answer)"}),
    d.second_column);
  v(of(Objectives::kLabelled,
       {"label_column",
        "column with the label (classify), the labels (multi_label), the number (regression), the answer "
        "(answer), the right choice (multiple_choice) or the tags (tag, .jsonl)",
        "\"label\" (\"answer\" for answer, \"ner_tags\" or \"tags\" for tag)"}),
    d.label_column);
  v(of({multiple_choice},
       {"choice_columns",
        "column of JSON lists with the choices of each question, or one column per choice"}),
    d.choice_columns);
  v(of({multi_label}, {"label_separator", "text between the labels of one row"}), d.label_separator);
  v(of({next_token, masked, permutation, sequence_to_sequence, span_corruption, denoise, prefix_lm, classify,
        multi_label, regression, multiple_choice, embed, answer},
       {"columns", "column names for files without a header line"}),
    d.columns);
  Choices formats = file_format_names();
  formats.insert(formats.begin(), "auto");
  v({"format", "file format (auto: by file extension; .gz and .zst are decompressed)"}, d.format, formats);
  v({"delimiter", "character between columns, e.g. \";\"", "comma (tab in .tsv)"}, d.delimiter);
  v({"keep_carriage_returns", "keep Windows line ends (\\r\\n) in texts (false: convert them to \\n)"},
    d.keep_carriage_returns);
  v(of({tag}, {"word_column", "column of the word in tagged files, counted from 1 (0: 1, or 2 in .conllu)"}),
    d.word_column, Range<int64_t>{0, 1000});
  v(of({tag},
       {"tag_column", "column of the tag in tagged files, counted from 1 (0: the last, or 4 in .conllu)"}),
    d.tag_column, Range<int64_t>{0, 1000});
  v(of({next_token, masked, permutation, sequence_to_sequence, span_corruption, denoise, prefix_lm, classify,
        multi_label, regression, multiple_choice, tag, answer},
       {"deduplicate", "drop repeated training texts, pairs and examples"}),
    d.deduplicate);
  v(of(Objectives::kTextsAndPairs,
       {"min_characters", "drop training documents and pairs with fewer characters"}),
    d.min_characters, Range<int64_t>{0, int64_t{1} << 40});
  v(of(Objectives::kTextsAndPairs,
       {"max_characters", "drop training documents and pairs with more characters (0: no limit)"}),
    d.max_characters, Range<int64_t>{0, int64_t{1} << 40});
  v(of({sequence_to_sequence},
       {"max_ratio", "drop pairs whose sides differ in length by more than this factor (0: no limit)"}),
    d.max_ratio, Range<double>{0, 1e9});
  v(of({chat}, {"chat_template", "file with the Jinja template that formats conversations",
                "the template of model.from, or ChatML"}),
    d.chat_template);
}

// The fields of a ModelSpec as keys of [model].
template <typename Visitor>
struct ModelKeys {
  Visitor& visitor;

  template <typename T, typename... Range>
  void operator()(const SpecField& f, T&& member, Range... range) {
    if (f.in_configuration()) visitor(Key{f.name, f.help, f.derived, !f.implied}, member, range...);
  }
};

// A key with its value as TOML.
struct Setting {
  std::string section, key, value, help, range;
  bool decides;
  ReadBy read_by;
};
// The settings of a configuration, in the order of the list.
std::vector<Setting> settings(const TrainConfig& config);

// The keys of [data], and of [mix.NAME] for each dataset of a mixture.
template <typename Visitor>
void visit_data(TrainConfig& c, Visitor& v) {
  using enum Objective;
  v.section("data");
  visit_files(c.data, v);
  v(of(Objectives::kLabelled, {"test", "test files: the best model is evaluated on them at the end"}),
    c.data.test);
  v(of(Objectives::kLabelled,
       {"test_fraction", "share of the training examples split off for testing when test is empty"}),
    c.data.test_fraction, Range<double>{0, 0.9});
  v(of(Objectives::kLabelled, {"folds", "number of cross-validation folds (0: no cross-validation)"}),
    c.data.folds, Range<int64_t>{0, 1000});
  v({"fold", "train only this fold (0: train all folds, into OUT/fold-1, ...)"}, c.data.fold,
    Range<int64_t>{0, 1000});
  v(loosely_of({chat, classify, multi_label, regression, multiple_choice, tag, answer},
               {"split_seed", "random seed of the validation and test split"}),
    c.data.split_seed);
  v({"cache", "cache the tokenized text for the next run", nullptr, false}, c.data.cache);

  for (MixedSet& set : c.mix) {
    v.section("mix." + set.name);
    v({"objective", "training objective",
       "next_token (masked for encoders, sequence_to_sequence for encoder-decoders)"},
      set.objective);
    v({"weight", "sampling weight: how often a micro-batch comes from this dataset"}, set.weight,
      Range<double>{1e-6, 1e6});
    visit_files(set.data, v);
  }
}

// The keys of [tokenizer].
template <typename Visitor>
void visit_tokenizer(TokenizerConfig& t, Visitor& v) {
  using enum Objective;
  v.section("tokenizer");
  v({"path", "tokenizer file or directory to use (empty: train a new tokenizer)"}, t.path);
  v(of({sequence_to_sequence}, {"source_path", "separate tokenizer for source texts"}), t.source_path);
  v(of({sequence_to_sequence}, {"separate", "train separate tokenizers for source and target texts"}),
    t.separate);
  v({"type", "type of the tokenizer to train", "bpe (wordpiece for encoders)"}, t.type,
    Choices{"bpe", "wordpiece", "unigram", "sentencepiece_bpe", "char", "byte", "word"});
  v({"lowercase", "lowercase the text and strip accents (wordpiece)"}, t.lowercase);
  v({"vocab_size", "vocabulary size, at most"}, t.vocab_size, Range<int64_t>{1, 1 << 28});
  v({"min_frequency", "a pair or word must occur this often to become a token"}, t.min_frequency, kCount);
  v({"add_special",
     "special tokens to add, e.g. [\"<|im_start|>\", \"<|im_end|>\"] (with model.from, the embedding grows)"},
    t.add_special);
}

// The keys of [model].
template <typename Visitor>
void visit_model(TrainConfig& c, Visitor& v) {
  v.section("model");
  v({"preset", "published architecture that supplies the keys you leave out", nullptr, false}, c.preset);
  v({"size", "size of the preset's blocks: tiny, small or base", nullptr, false}, c.size);
  v({"from", "start from the weights of this model or run (the task head is new)", nullptr, true}, c.from);
  v({"part", "take only the encoder or the decoder out of the encoder-decoder in model.from", nullptr, false},
    c.part);
  ModelKeys<Visitor> keys{v};
  for_each_field(c.model, keys);
  v.kinds(c.model.kinds);
}

// The keys of [train] for the objective and the length of training.
template <typename Visitor>
void visit_objective(TrainConfig& c, Visitor& v) {
  using enum Objective;
  v({"objective", "training objective",
     "next_token (masked for encoders, sequence_to_sequence for encoder-decoders)"},
    c.objective);
  v(of({masked, permutation}, {"mask_rate", "share of tokens to predict"}), c.masking.rate,
    Range<double>{0.001, 0.9});
  v(of({masked}, {"mask_random", "share of the masked tokens that are replaced by a random token"}),
    c.masking.random, Range<double>{0, 1});
  v(of({masked}, {"mask_keep", "share of the masked tokens that stay unchanged"}), c.masking.keep,
    Range<double>{0, 1});
  v(of({masked, permutation}, {"mask_whole_words", "mask whole words instead of single tokens"}),
    c.masking.whole_words);
  v(of({masked}, {"next_sentence", "also predict whether the second segment follows the first (BERT)"}),
    c.masking.next_sentence);
  v({"out", "directory of the run", nullptr, false}, c.out);
  v({"steps", "number of optimizer steps"}, c.steps, kCount);
  v({"epochs", "number of passes over the training data, instead of steps, e.g. 3 or 0.5 (0: use steps)",
     nullptr, false},
    c.epochs, Range<double>{0, 1e6});
  v(of({span_corruption}, {"span_density", "share of tokens removed in spans"}), c.spans.density,
    Range<double>{0.001, 0.9});
  v(of({span_corruption, denoise}, {"span_length", "mean length of a span in tokens"}), c.spans.mean_length,
    Range<double>{1, 1000});
  c.noise.mean_length = c.spans.mean_length;
  v(of({denoise}, {"infill", "share of tokens replaced by span masks"}), c.noise.infill,
    Range<double>{0, 0.9});
  v(of({denoise}, {"deletion", "share of the remaining tokens that are deleted"}), c.noise.deletion,
    Range<double>{0, 0.9});
  v(of({denoise}, {"permute_sentences", "shuffle the sentences"}), c.noise.permute);
  v(of({classify, multi_label, regression, multiple_choice},
       {"token_drop", "augmentation: share of tokens dropped in training"}),
    c.augmentation.drop, Range<double>{0, 0.9});
  v(of({classify, multi_label, regression, multiple_choice},
       {"token_swap", "augmentation: share of tokens swapped with the next one in training"}),
    c.augmentation.swap, Range<double>{0, 0.9});
  v(of({classify, multi_label, regression, multiple_choice, tag},
       {"token_mask", "augmentation: share of tokens masked in training"}),
    c.augmentation.mask, Range<double>{0, 0.9});
}

// The keys of [train] for batches.
template <typename Visitor>
void visit_batches(TrainConfig& c, Visitor& v) {
  using enum Objective;
  v(of({next_token},
       {"batch", "windows per micro-batch, or of all shards; \"fit\": as many as fit in memory"}),
    c.batch, kCount, "fit");
  v(of({next_token}, {"window", "length of a training window in tokens (0: the model's context)"}), c.window,
    Range<int64_t>{0, 1 << 24});
  v(of({masked, permutation, sequence_to_sequence, span_corruption, denoise, prefix_lm, chat, classify,
        multi_label, regression, multiple_choice, tag, embed, answer},
       {"batch_tokens", "tokens per micro-batch, or of all shards"}),
    c.batch_tokens, Range<int64_t>{2, 1 << 24});
  v({"accumulate", "micro-batches per optimizer step (gradient accumulation)"}, c.accumulate, kCount);
  v({"shards",
     "parts of a step's batch for training on several ranks (mpirun): a power of two, at least the number of "
     "ranks. A run has the same bits for any number of ranks"},
    c.shards, Range<int64_t>{1, 1 << 16});
  v({"shard_order",
     "order in which the shards' gradients add up: in a fixed tree, or in any order, which is faster and "
     "makes "
     "the last bits depend on the number of ranks"},
    c.shard_order, Choices{"tree", "any"});
  v({"zero",
     "ZeRO-1: each rank keeps the optimizer's state and the f32 weights of its part of the model alone (the "
     "same bits, less memory)",
     nullptr, false},
    c.zero);
  v({"seed", "random seed"}, c.seed);
  v({"precision", "precision of matrix products (auto: bf16 if the processor is faster with it)"},
    c.precision, Choices{"auto", "f32", "bf16"});
  v({"recompute",
     "recompute activations in the backward pass (activation checkpointing): less memory, about 25% more "
     "time",
     nullptr, false},
    c.recompute);
  v({"memory_gb", "memory limit of the run in GB (0: free memory)", nullptr, false}, c.memory_gb,
    Range<double>{0, 1e6});
}

// The keys of [train] for weight updates.
template <typename Visitor>
void visit_updates(StepConfig& step, Visitor& v) {
  OptimizerConfig& o = step.optimizer;
  v({"optimizer", "optimizer"}, o.name, optimizer_names());
  ScheduleConfig& s = step.schedule;
  v({"learning_rate", "peak learning rate"}, s.learning_rate, Range<double>{0, 1e6});
  v({"min_learning_rate", "final learning rate of the schedule", "learning_rate / 10"}, s.min_learning_rate,
    Range<double>{0, 1e6});
  v({"schedule", "learning rate schedule after warm-up"}, s.name, schedule_names());
  v({"warmup_steps", "steps of linear warm-up", "100, at most steps / 10 (0.3 x steps for one_cycle)"},
    s.warmup_steps, kCountOrNone);
  v.warmup_fraction(
      {"warmup_fraction", "warm-up as a share of all steps, instead of warmup_steps, e.g. 0.02", "none"},
      Range<double>{0, 1});
  v({"weight_decay", "weight decay of matrices (not of norms and biases)",
     "0.1 for adamw, lion and adafactor, else 0"},
    o.weight_decay, Range<double>{0, 100});
  v({"momentum", "momentum of sgd"}, o.momentum, Range<double>{0, 0.9999999});
  v({"nesterov", "Nesterov momentum for sgd"}, o.nesterov);
  v({"beta1", "decay of the first moment (adam, adamw, lion)"}, o.beta1, Range<double>{0, 0.9999999});
  v({"beta2", "decay of the second moment (adam, adamw, lion, rmsprop)"}, o.beta2,
    Range<double>{0, 0.9999999});
  v({"epsilon", "added to the denominator of the update (adam, adamw, rmsprop, adagrad)"}, o.epsilon,
    Range<double>{0, 1});
  v({"clip", "clip the gradient to this norm (0: no clipping)"}, step.clip, Range<double>{0, 1e9});
  v(of(Objectives::kClasses, {"label_smoothing", "label smoothing"}), step.terms.label_smoothing,
    Range<double>{0, 0.9});
  v(of(Objectives::kClasses,
       {"z_loss", "weight of the z-loss, which keeps the softmax denominator near 1, e.g. 1e-4"}),
    step.terms.z_loss, Range<double>{0, 1});
  v({"layer_decay", "layer-wise learning rate decay: factor from each block to the one below"},
    step.layer_decay, Range<double>{0.01, 1});
  v({"freeze", "parameters to freeze, e.g. [\"embedding.*\", \"encoder.block.0.*\"]"}, step.freeze);
  v({"layer_drop", "probability to skip a block in a training step (LayerDrop)"}, step.layer_drop,
    Range<double>{0, 0.95});
  v({"gradient_noise", "gradient noise: its variance is this / (1 + step)^0.55"}, step.gradient_noise,
    Range<double>{0, 1e3});
  v({"weight_noise", "standard deviation of noise on the weights during the forward and backward pass"},
    step.weight_noise, Range<double>{0, 10});
  v({"adversarial", "size of the adversarial step on the embeddings (FGM), e.g. 0.5"}, step.adversarial,
    Range<double>{0, 1e3});
  v({"ema", "decay of the exponential moving average of weights, e.g. 0.999 (0: off)"}, step.ema,
    Range<double>{0, 0.9999999});
}

// The keys of [train] for evaluation and records.
template <typename Visitor>
void visit_records(TrainConfig& c, Visitor& v) {
  using enum Objective;
  v({"log_every", "steps between log lines", nullptr, false}, c.log_every, kCount);
  v({"eval_every", "steps between evaluations"}, c.eval_every, kCount);
  v(loosely_of({next_token}, {"eval_windows", "validation windows per evaluation during training (0: all)"}),
    c.eval_windows, kCountOrNone);
  v(of({sequence_to_sequence},
       {"eval_bleu", "validation pairs to translate per evaluation, for BLEU and exact match (0: none)"}),
    c.eval_bleu, kCountOrNone);
  v({"best_by", "score that selects the best model", "loss (accuracy, micro_f1 or f1 for labelled data)"},
    c.best_by,
    Choices{"auto", "loss", "accuracy", "macro_f1", "matthews", "f1", "micro_f1", "pearson", "spearman",
            "exact_match", "bleu"});
  v({"patience", "early stopping: stop after this many evaluations without improvement (0: never)"},
    c.patience, kCountOrNone);
  v({"checkpoint_every", "steps between checkpoints", nullptr, false}, c.checkpoint_every, kCount);
  v({"keep", "number of recent checkpoints to keep, besides the best model (qkv average can merge them)",
     nullptr, false},
    c.keep, kCount);
  v(loosely_of(
        {next_token, sequence_to_sequence, span_corruption, denoise, prefix_lm, chat},
        {"sample_tokens", "length of the sample text written at each evaluation (0: none)", nullptr, false}),
    c.sample_tokens, kCountOrNone);
  v(loosely_of({next_token, sequence_to_sequence, chat},
               {"sample_prompt", "prompt of the sample text (empty: the start of the validation text)",
                nullptr, false}),
    c.sample_prompt);
  v(loosely_of({next_token},
               {"trace_every", "steps between small traces of what heads attend to, for the report (0: none)",
                nullptr, false}),
    c.trace_every, kCountOrNone);
}

// Visits every key of a configuration. Reading, writing, the fingerprint and the help text all use this
// list.
template <typename Visitor>
void visit(TrainConfig& c, Visitor& v) {
  visit_data(c, v);
  visit_tokenizer(c.tokenizer, v);
  visit_model(c, v);
  v.section("train");
  visit_objective(c, v);
  visit_batches(c, v);
  visit_updates(c.step, v);
  visit_records(c, v);
}

}  // namespace qkv
