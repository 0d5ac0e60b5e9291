// Labelled examples for a model with a head: texts with classes, words with tags, questions with answers or
// choices.
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
  TextPair text;                             // for tags: the words, joined by spaces
  std::string label;                         // the class, or the text of an answer; several: joined
  std::vector<std::string> words, tags;      // for token classes; tags: also the labels of multi_label
  double number = 0;                         // for regression
  std::vector<std::string> choices;          // for multiple choice; the label is the right one's text
  int64_t right = -1;                        // its number, from 0
  int64_t answer_begin = 0, answer_end = 0;  // for a span: byte range in text.second
  std::string place;                         // FILE:LINE
};

// Other results of read_examples().
struct ReadExamples {
  std::vector<Example> without_text;  // rows that have no text to classify
  Notes notes;
};

// The kind of an example's labels.
struct LabelKind {
  Output output = Output::sequence_classes;
  Problem problem = Problem::single_label;

  LabelKind(Output output) : output(output) {}  // NOLINT(google-explicit-constructor): the usual problem
  LabelKind(const ModelSpec& spec)              // NOLINT(google-explicit-constructor): that of its output
      : output(spec.output), problem(spec.problem) {}
  // True if an example may have several labels, in its `tags`.
  bool several() const { return output == Output::token_classes || problem == Problem::multi_label; }
};

// Reads examples from files: rows with the columns that `data` names (choices.h has those of choices); for
// token classes words in columns, or lists of words and tags in .jsonl. Several labels of a text are divided
// by data.label_separator. Throws Error naming file and line if something is missing.
std::vector<Example> read_examples(const std::vector<std::string>& files, const DataConfig& data,
                                   const LabelKind& kind, ReadExamples* found = nullptr);

// Removes examples whose text occurred before, and returns their number.
int64_t deduplicate(std::vector<Example>& examples);

// Removes a random part of the examples, chosen by the seed, and returns it in order. Equal texts stay
// together so that no text is in both parts, which may make the part larger than the fraction.
std::vector<Example> split_off(std::vector<Example>& examples, double fraction, uint64_t seed);

// Removes fold `fold`, from 1, of `folds` and returns it. Each example is in exactly one fold. Equal texts
// stay together, and labels are spread evenly; otherwise the seed decides. Throws Error if there are fewer
// texts than folds.
std::vector<Example> take_fold(std::vector<Example>& examples, int64_t fold, int64_t folds, uint64_t seed);

// The labels that occur, sorted; if all are numbers, by value.
std::vector<std::string> labels_of(const std::vector<Example>& examples, const LabelKind& kind);

// Texts for training a tokenizer.
std::vector<std::string> texts_of(const std::vector<Example>& examples);

// Finds the classes of a model by name.
class LabelIndex {
 public:
  explicit LabelIndex(std::vector<std::string> labels);
  // Returns nothing if there is no such class.
  std::optional<int32_t> find(const std::string& label) const;
  // Throws Error naming place and label if there is no such class.
  int32_t operator()(const std::string& label, const std::string& place) const;

 private:
  std::vector<std::string> labels_;
  std::map<std::string, int32_t> class_of_;
};

// Indices of an answer's first and last token; nothing if truncation removed it.
std::optional<std::pair<int32_t, int32_t>> answer_tokens(const text::Encoding& encoding, const Example& e);

// The sequences that a model reads of an example: its text, or its question with each choice. Errors name the
// example's place.
std::vector<EncodedText> encode_example(const Example& e, const text::Tokenizer& tokenizer,
                                        const ModelSpec& spec);

// Encoded examples.
struct EncodedExamples {
  LabelledStream stream;
  int64_t cut = 0;           // truncated, because longer than the model can read
  int64_t lost = 0;          // dropped, because truncation removed all targets
  int64_t without_text = 0;  // dropped, because empty
};

// Throws Error naming place and label if the model has no such class.
EncodedExamples encode_examples(const std::vector<Example>& examples, const text::Tokenizer& tokenizer,
                                const ModelSpec& spec);

}  // namespace qkv
