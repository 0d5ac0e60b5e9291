// What an encoder with a head learns from: texts with classes, words with tags, questions with answers.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qkv/data/labelled.h"
#include "qkv/infer/encode.h"
#include "qkv/train/config/config.h"

namespace qkv {

// One example of a file.
struct Example {
  TextPair text;                             // of tags: the words with spaces between them
  std::string label;                         // of a class; of an answer its text
  std::vector<std::string> words, tags;      // of token classes
  int64_t answer_begin = 0, answer_end = 0;  // of a span: bytes of text.second
  std::string place;                         // FILE:LINE
};

// The rest of what read_examples() finds in files.
struct ReadExamples {
  std::vector<Example> without_text;  // rows that nobody can tell anything of
  Notes notes;
};

// The examples of some files: rows with the columns that `data` names, or of token classes words in columns,
// or lists of words and tags in .jsonl. Throws Error naming file and line of what is missing.
std::vector<Example> read_examples(const std::vector<std::string>& files, const DataConfig& data,
                                   Output output, ReadExamples* found = nullptr);

// Removes the examples whose text occurred before; returns how many.
int64_t deduplicate(std::vector<Example>& examples);

// Takes a part of the examples away: those that (seed) chooses, in their order. Equal texts stay together, so
// that none is learnt from and asked for; there may be some more than the fraction for it.
std::vector<Example> split_off(std::vector<Example>& examples, double fraction, uint64_t seed);

// Takes part `fold`, from 1, of `folds` parts away: together they are all examples, each once. Equal texts
// stay together, and labels are spread evenly; what is left to chance is a function of the seed. Throws Error
// where there are fewer texts than parts.
std::vector<Example> take_fold(std::vector<Example>& examples, int64_t fold, int64_t folds, uint64_t seed);

// The classes that occur, sorted; numbers by their value.
std::vector<std::string> labels_of(const std::vector<Example>& examples, Output output);

// Texts that a tokenizer is trained on.
std::vector<std::string> texts_of(const std::vector<Example>& examples);

// The classes of a model by their names.
class LabelIndex {
 public:
  explicit LabelIndex(std::vector<std::string> labels);
  // Nothing where there is no such class.
  std::optional<int32_t> find(const std::string& label) const;
  // Throws Error naming place and label where there is no such class.
  int32_t operator()(const std::string& label, const std::string& place) const;

 private:
  std::vector<std::string> labels_;
  std::map<std::string, int32_t> class_of_;
};

// Where an answer's tokens are, the first and the last one; nothing where it was cut away.
std::optional<std::pair<int32_t, int32_t>> answer_tokens(const text::Encoding& encoding, const Example& e);

// encode_text(). Errors name the example's place.
EncodedText encode_example(const Example& e, const text::Tokenizer& tokenizer, const ModelSpec& spec);

// Examples as a model reads them.
struct EncodedExamples {
  LabelledStream stream;
  int64_t cut = 0;           // that were longer than the model can read
  int64_t lost = 0;          // of these, what was to be learnt was cut away: left out
  int64_t without_text = 0;  // left out, too
};

// Throws Error naming place and label where the model has no such class.
EncodedExamples encode_examples(const std::vector<Example>& examples, const text::Tokenizer& tokenizer,
                                const ModelSpec& spec);

}  // namespace qkv
