// Options and helpers that the subcommands with an encoder share.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "qkv/api/text_model.h"
#include "qkv/cli/options.h"
#include "qkv/cli/text_input.h"
#include "qkv/infer/predict.h"

namespace qkv {

struct EncoderOptions : TextInput {
  std::string dir, dtype = "f32";
  int64_t batch_tokens = 4096;
  bool strict = false;
  std::vector<std::string> ensemble;
};

// Declares these options, with those of the text input.
void add_encoder_options(Command& command, EncoderOptions& o);

// Declares --ensemble, for the commands that call load_encoders().
void add_ensemble_option(Command& command, EncoderOptions& o);

// Loads an encoder. If its output is not among `wanted`, throws Error that names the checkpoint's kind and
// the kind that `command` needs.
TextModel load_encoder(const std::string& dir, const std::string& dtype, std::initializer_list<Output> wanted,
                       const char* command);

// Loads o.dir, then o.ensemble. Throws Error as load_encoder() does, and if their classes differ.
std::vector<TextModel> load_encoders(const EncoderOptions& o, Output wanted, const char* command);

// The mean of the probabilities that several models give to the same classes.
class MeanProbabilities {
 public:
  void add(const std::vector<double>& p);
  std::vector<double> mean() const;  // empty if there is no model

 private:
  std::vector<double> sum_;
  int models_ = 0;
};

// Encodes the texts that are not empty; `which` gets their indices. Adds the number of truncated texts to
// `cut`, or throws Error at the first one if o.strict.
std::vector<EncodedText> encode_texts(const EncoderOptions& o, const TextModel& m,
                                      const std::vector<InputText>& texts, std::vector<size_t>& which,
                                      int64_t& cut);

// Lines and what a query makes of them.
class RankedLines {
 public:
  void add(double score, std::string text) { lines_.emplace_back(score, std::move(text)); }
  // Prints the `best` ones, 0: all, of the highest scores first; `name`: the score's in JSON.
  void print_best(int64_t best, const char* name, bool json);

 private:
  std::vector<std::pair<double, std::string>> lines_;
};

// Prints a note on stderr if texts were truncated.
void note_cut(int64_t cut, const TextModel& m);
// The same for the model that truncated the most texts.
void note_cut(const std::vector<int64_t>& cut, const std::vector<TextModel>& models);

}  // namespace qkv
