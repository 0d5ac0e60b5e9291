// The keys of a configuration: one list, which reading, writing, the fingerprint and the help text walk.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "qkv/models/spec_schema.h"
#include "qkv/train/config/config.h"

namespace qkv {

// Objectives that read a key; none: all do.
struct ReadBy {
  std::vector<Objective> objectives = {};
  bool loosely = false;  // a key of the file is no error where --set gives another objective

  bool any_of(const std::vector<Objective>& others) const {
    return objectives.empty() || std::ranges::find_first_of(objectives, others) != objectives.end();
  }
};

// What the list of keys says of one.
struct Key {
  const char* name;
  const char* help;
  const char* derived = nullptr;  // its default where that depends on other keys
  bool decides = true;            // what the run computes
  ReadBy read_by = {};            // other objectives reject it
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

// Objectives by what they read.
struct Objectives {
  using enum Objective;
  // Plain texts.
  static inline const std::vector<Objective> kTexts = {next_token, masked, permutation, span_corruption,
                                                       denoise};
  // Texts, or pairs of them.
  static inline const std::vector<Objective> kTextsAndPairs = {
      next_token, masked, permutation, sequence_to_sequence, span_corruption, denoise};
  // Examples with labels.
  static inline const std::vector<Objective> kLabelled = {classify, tag, answer};
  // Targets in the form of tokens or classes: spans and pairs of vectors have losses of their own.
  static inline const std::vector<Objective> kClasses = {
      next_token, masked, permutation, sequence_to_sequence, span_corruption, denoise, chat, classify, tag};
};
using Choices = std::vector<std::string>;
// Numbers of things.
inline constexpr Range<int64_t> kCount = {1, 1'000'000'000};
// Or none.
inline constexpr Range<int64_t> kCountOrNone = {0, 1'000'000'000};

// The keys that say which files are learnt from, and how they are read.
template <typename Visitor>
void visit_files(DataConfig& d, Visitor& v) {
  using enum Objective;
  v({"train", "text files to learn from: one, or a list", "(needed)"}, d.train);
  v({"valid",
     "held-out files; none: the last part of each text, the last pairs of all files, or labelled examples "
     "that split_seed draws"},
    d.valid);
  v({"valid_fraction", "of a text's characters, of all pairs or examples, where valid is empty"},
    d.valid_fraction, Range<double>{0, 0.9});
  v(of(Objectives::kTexts, {"separator", "divides a file into documents, e.g. \"<|endoftext|>\""}),
    d.separator);
  v(of({sequence_to_sequence},
       {"train_target", "translations of train's lines; none: train has rows (.tsv, .csv, .jsonl)"}),
    d.train_target);
  v(of({sequence_to_sequence}, {"valid_target", "translations of valid's lines"}), d.valid_target);
  v(of({sequence_to_sequence}, {"source_column", "of rows: what a sequence-to-sequence model reads"}),
    d.source_column);
  v(of({sequence_to_sequence}, {"target_column", "of rows: what it writes"}), d.target_column);
  v(of({sequence_to_sequence}, {"prefix", "stands before each source, e.g. \"translate: \""}), d.prefix);
  v(of({next_token, masked, permutation, span_corruption, denoise, classify, tag, embed, answer},
       {"text_column", "of rows: the text to read or to classify; the question; in .jsonl of tags the words",
        "text, of answers question, of tags tokens"}),
    d.text_column);
  v(of({classify, embed, answer},
       {"second_column", "of rows: the other text of a pair; where the answer stands",
        "(none), of answers context"}),
    d.second_column);
  v(of(Objectives::kLabelled, {"label_column", "of rows: the class; the answer; in .jsonl of tags the tags",
                               "label, of answers answer, of tags ner_tags or tags"}),
    d.label_column);
  v(of({next_token, masked, permutation, sequence_to_sequence, span_corruption, denoise, classify, embed,
        answer},
       {"columns", "names of the columns of files without a header"}),
    d.columns);
  Choices formats = file_format_names();
  formats.insert(formats.begin(), "auto");
  v({"format", "format of the files; auto: by their extensions, behind which .gz or .zst may stand"},
    d.format, formats);
  v({"delimiter", "character between the columns of rows, e.g. \";\"", "comma, in .tsv a tab"}, d.delimiter);
  v({"keep_carriage_returns", "keep Windows line ends (\\r\\n) in texts; false: they become \\n"},
    d.keep_carriage_returns);
  v(of({tag}, {"word_column", "of tagged words, from 1; 0: 1, of .conllu 2"}), d.word_column,
    Range<int64_t>{0, 1000});
  v(of({tag}, {"tag_column", "of tagged words, from 1; 0: the last, of .conllu 4"}), d.tag_column,
    Range<int64_t>{0, 1000});
  v(of({next_token, masked, permutation, sequence_to_sequence, span_corruption, denoise, classify, tag,
        answer},
       {"deduplicate", "of training texts, pairs and examples that are the same keep the first"}),
    d.deduplicate);
  v(of(Objectives::kTextsAndPairs,
       {"min_characters", "leave out of training shorter documents, and pairs with a shorter side"}),
    d.min_characters, Range<int64_t>{0, int64_t{1} << 40});
  v(of(Objectives::kTextsAndPairs, {"max_characters", "and longer ones; 0: none is too long"}),
    d.max_characters, Range<int64_t>{0, int64_t{1} << 40});
  v(of({sequence_to_sequence},
       {"max_ratio", "and pairs whose one side has so many times the other's characters; 0: any"}),
    d.max_ratio, Range<double>{0, 1e9});
  v(of({chat}, {"chat_template", "file of how conversations are written (Jinja)",
                "that of the model it begins with, or ChatML"}),
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

// A key with its value as TOML; `about` says what it means and may be.
struct Setting {
  std::string section, key, value, about;
  bool decides;
  ReadBy read_by;
};
// Those of a configuration, in the list's order.
std::vector<Setting> settings(const TrainConfig& config);

// The keys of [data], and of [mix.NAME] for each data set of a mixture.
template <typename Visitor>
void visit_data(TrainConfig& c, Visitor& v) {
  using enum Objective;
  v.section("data");
  visit_files(c.data, v);
  v(of(Objectives::kLabelled, {"test", "examples that the best model is judged by at the end"}), c.data.test);
  v(of(Objectives::kLabelled, {"test_fraction", "of the training examples, where test is empty"}),
    c.data.test_fraction, Range<double>{0, 0.9});
  v(of(Objectives::kLabelled,
       {"folds",
        "cross-validation: parts of the training examples, each the test of a model that learns from the "
        "others; 0: none"}),
    c.data.folds, Range<int64_t>{0, 1000});
  v({"fold", "train only the model that this part tests; 0: one after the other, into OUT/fold-1, ..."},
    c.data.fold, Range<int64_t>{0, 1000});
  v(loosely_of({chat, classify, tag, answer},
               {"split_seed", "chooses the labelled examples for validation and test"}),
    c.data.split_seed);
  v({"cache", "keep the tokens of a text for the next run", nullptr, false}, c.data.cache);

  for (MixedSet& set : c.mix) {
    v.section("mix." + set.name);
    v({"objective", "what is learnt from this data set", "train.objective"}, set.objective);
    v({"weight", "how often a micro-batch is of it, in proportion to the others"}, set.weight,
      Range<double>{1e-6, 1e6});
    visit_files(set.data, v);
  }
}

// The keys of [tokenizer].
template <typename Visitor>
void visit_tokenizer(TokenizerConfig& t, Visitor& v) {
  using enum Objective;
  v.section("tokenizer");
  v({"path", "an existing tokenizer; none: one is trained"}, t.path);
  v(of({sequence_to_sequence},
       {"source_path", "another for sources, where they have a vocabulary of their own"}),
    t.source_path);
  v(of({sequence_to_sequence},
       {"separate", "sequence_to_sequence: one is trained for sources and one for targets"}),
    t.separate);
  v({"type", "of the tokenizer to train", "bpe, of an encoder wordpiece"}, t.type,
    Choices{"bpe", "wordpiece", "unigram", "sentencepiece_bpe", "char", "byte", "word"});
  v({"lowercase", "wordpiece: upper case and accents are lost"}, t.lowercase);
  v({"vocab_size", "tokens at most"}, t.vocab_size, Range<int64_t>{1, 1 << 28});
  v({"min_frequency", "of what becomes a token"}, t.min_frequency, kCount);
  v({"add_special",
     "special tokens to add to the tokenizer, e.g. [\"<|im_start|>\", \"<|im_end|>\"]; with model.from the "
     "embeddings grow"},
    t.add_special);
}

// The keys of [model].
template <typename Visitor>
void visit_model(TrainConfig& c, Visitor& v) {
  v.section("model");
  v({"preset", "a published architecture, whose keys stand for those that are not given", nullptr, false},
    c.preset);
  v({"size", "of a preset's blocks: tiny, small or base", nullptr, false}, c.size);
  v({"from", "begin with the weights of this model or run, and a head of its own", nullptr, true}, c.from);
  ModelKeys<Visitor> keys{v};
  for_each_field(c.model, keys);
  v.kinds(c.model.kinds);
}

// The keys of [train] that say what is learnt, and for how long.
template <typename Visitor>
void visit_objective(TrainConfig& c, Visitor& v) {
  using enum Objective;
  v({"objective", "what is learnt", "next_token, of an encoder masked, of two stacks sequence_to_sequence"},
    c.objective);
  v(of({masked, permutation}, {"mask_rate", "of the tokens, to be found"}), c.masking.rate,
    Range<double>{0.001, 0.9});
  v(of({masked}, {"mask_random", "of these, that stand as another token"}), c.masking.random,
    Range<double>{0, 1});
  v(of({masked}, {"mask_keep", "of these, that stand as they are"}), c.masking.keep, Range<double>{0, 1});
  v(of({masked, permutation}, {"mask_whole_words", "hide all tokens of a word, or none"}),
    c.masking.whole_words);
  v(of({masked}, {"next_sentence", "also tell whether the second half of a piece is its own"}),
    c.masking.next_sentence);
  v({"out", "folder of the run", nullptr, false}, c.out);
  v({"steps", "updates of the weights"}, c.steps, kCount);
  v({"epochs", "instead of steps: passes over the training data, e.g. 3 or 0.5; 0: steps counts", nullptr,
     false},
    c.epochs, Range<double>{0, 1e6});
  v(of({span_corruption}, {"span_density", "of the tokens, taken away in spans"}), c.spans.density,
    Range<double>{0.001, 0.9});
  v(of({span_corruption, denoise}, {"span_length", "of a span on average"}), c.spans.mean_length,
    Range<double>{1, 1000});
  c.noise.mean_length = c.spans.mean_length;
  v(of({denoise}, {"infill", "of the tokens, in spans that a mask stands for"}), c.noise.infill,
    Range<double>{0, 0.9});
  v(of({denoise}, {"deletion", "of the other tokens, left out"}), c.noise.deletion, Range<double>{0, 0.9});
  v(of({denoise}, {"permute_sentences", "sentences stand in another order"}), c.noise.permute);
  v(of({classify}, {"token_drop", "of a text's tokens, left out of a training step"}), c.augmentation.drop,
    Range<double>{0, 0.9});
  v(of({classify}, {"token_swap", "of them, that change places with the next"}), c.augmentation.swap,
    Range<double>{0, 0.9});
  v(of({classify, tag}, {"token_mask", "of them, hidden"}), c.augmentation.mask, Range<double>{0, 0.9});
}

// The keys of [train] that say what a step reads.
template <typename Visitor>
void visit_batches(TrainConfig& c, Visitor& v) {
  using enum Objective;
  v(of({next_token}, {"batch", "windows of a micro-batch; \"fit\": as many as fit into memory"}), c.batch,
    kCount, "fit");
  v(of({next_token},
       {"window", "tokens of a text that are read together (next_token); 0: the model's context"}),
    c.window, Range<int64_t>{0, 1 << 24});
  v(of({masked, permutation, sequence_to_sequence, span_corruption, denoise, chat, classify, tag, embed,
        answer},
       {"batch_tokens", "tokens of a micro-batch of sequences"}),
    c.batch_tokens, Range<int64_t>{2, 1 << 24});
  v({"accumulate", "micro-batches of a step"}, c.accumulate, kCount);
  v({"seed", "of all that is random"}, c.seed);
  v({"precision", "auto: bf16 where the processor gains from it"}, c.precision,
    Choices{"auto", "f32", "bf16"});
  v({"recompute", "keep no activations inside blocks: less memory for a quarter more time", nullptr, false},
    c.recompute);
  v({"memory_gb", "what the run may take; 0: what is free", nullptr, false}, c.memory_gb,
    Range<double>{0, 1e6});
}

// The keys of [train] that say how weights are updated.
template <typename Visitor>
void visit_updates(StepConfig& step, Visitor& v) {
  OptimizerConfig& o = step.optimizer;
  v({"optimizer", "the update rule"}, o.name, optimizer_names());
  ScheduleConfig& s = step.schedule;
  v({"learning_rate", "the highest"}, s.learning_rate, Range<double>{0, 1e6});
  v({"min_learning_rate", "where the schedule ends", "learning_rate / 10"}, s.min_learning_rate,
    Range<double>{0, 1e6});
  v({"schedule", "after the warm-up"}, s.name, schedule_names());
  v({"warmup_steps", "until the highest rate", "100, or steps / 10 where less; of one_cycle 0.3 steps"},
    s.warmup_steps, kCountOrNone);
  v.warmup_fraction({"warmup_fraction", "instead of warmup_steps: a part of all steps, e.g. 0.02", "(none)"},
                    Range<double>{0, 1});
  v({"weight_decay", "of matrices, not of norms and biases", "0.1 of adamw, lion, adafactor; else 0"},
    o.weight_decay, Range<double>{0, 100});
  v({"momentum", "of sgd"}, o.momentum, Range<double>{0, 0.9999999});
  v({"nesterov", "sgd looks ahead along its momentum"}, o.nesterov);
  v({"beta1", "of adam, adamw, lion"}, o.beta1, Range<double>{0, 0.9999999});
  v({"beta2", "of adam, adamw, lion, rmsprop"}, o.beta2, Range<double>{0, 0.9999999});
  v({"epsilon", "of adam, adamw, rmsprop, adagrad"}, o.epsilon, Range<double>{0, 1});
  v({"clip", "the gradient's norm at most; 0: no limit"}, step.clip, Range<double>{0, 1e9});
  v(of(Objectives::kClasses, {"label_smoothing", "part of the target spread over the vocabulary"}),
    step.terms.label_smoothing, Range<double>{0, 0.9});
  v(of(Objectives::kClasses, {"z_loss", "keeps the softmax's denominator near 1, e.g. 1e-4"}),
    step.terms.z_loss, Range<double>{0, 1});
  v({"layer_decay", "a block's learning rate, times that of the block above; embeddings are lowest"},
    step.layer_decay, Range<double>{0.01, 1});
  v({"freeze", "parameters that stay as they are, e.g. [\"embedding.*\", \"encoder.block.0.*\"]"},
    step.freeze);
  v({"layer_drop", "probability that a step skips a block"}, step.layer_drop, Range<double>{0, 0.95});
  v({"gradient_noise", "eta of the variance eta / (1 + step)^0.55"}, step.gradient_noise,
    Range<double>{0, 1e3});
  v({"weight_noise", "standard deviation, while a gradient is computed"}, step.weight_noise,
    Range<double>{0, 10});
  v({"adversarial", "a step along the embeddings' gradient, from where another one is added (FGM), e.g. 0.5"},
    step.adversarial, Range<double>{0, 1e3});
  v({"ema", "decay of averaged weights, which are then validated and kept as the best, e.g. 0.999"}, step.ema,
    Range<double>{0, 0.9999999});
}

// The keys of [train] that say how a run is judged and recorded.
template <typename Visitor>
void visit_records(TrainConfig& c, Visitor& v) {
  using enum Objective;
  v({"log_every", "steps", nullptr, false}, c.log_every, kCount);
  v({"eval_every", "steps"}, c.eval_every, kCount);
  v(loosely_of({next_token}, {"eval_windows", "of the validation text, on the way; 0: all"}), c.eval_windows,
    kCountOrNone);
  v(of({sequence_to_sequence}, {"eval_bleu",
                                "validation pairs translated greedily at each evaluation, for their BLEU and "
                                "exact matches; 0: none"}),
    c.eval_bleu, kCountOrNone);
  v({"best_by", "the score that tells the best model", "loss, of classes accuracy or f1"}, c.best_by,
    Choices{"auto", "loss", "accuracy", "macro_f1", "matthews", "f1", "exact_match", "bleu"});
  v({"patience", "stop after so many evaluations without a better one; 0: never"}, c.patience, kCountOrNone);
  v({"checkpoint_every", "steps", nullptr, false}, c.checkpoint_every, kCount);
  v({"keep", "checkpoints kept, besides the best model; qkv average makes one of several", nullptr, false},
    c.keep, kCount);
  v(loosely_of(
        {next_token, sequence_to_sequence, span_corruption, denoise, chat},
        {"sample_tokens", "of a text written at each evaluation, for the report; 0: none", nullptr, false}),
    c.sample_tokens, kCountOrNone);
  v(loosely_of(
        {next_token, sequence_to_sequence, chat},
        {"sample_prompt", "what it continues; none: the start of the validation text", nullptr, false}),
    c.sample_prompt);
}

// Every key of a configuration. Reading, writing, the fingerprint and the help text all walk this one list.
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
