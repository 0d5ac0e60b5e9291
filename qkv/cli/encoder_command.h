// What the subcommands that read lines with an encoder have in common.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "qkv/api/text_model.h"
#include "qkv/cli/options.h"
#include "qkv/infer/predict.h"

namespace qkv {

struct EncoderOptions {
  std::string dir, file, dtype = "f32";
  int64_t batch_tokens = 4096, lines_at_once = 0;
  bool json = false, json_lines = false, strict = false;
  std::vector<std::string> ensemble;
};

// Declares them. `second`: the JSON key, and what follows a tab, of a pair's other text; empty: lines are one
// text.
void add_encoder_options(Command& command, EncoderOptions& o, const std::string& first,
                         const std::string& second);

// Declares --ensemble, of the commands that load_encoders().
void add_ensemble_option(Command& command, EncoderOptions& o);

// Loads an encoder. Throws Error saying what the checkpoint is, and what `command` needs, where its output is
// none of these.
TextModel load_encoder(const std::string& dir, const std::string& dtype, std::initializer_list<Output> wanted,
                       const char* command);

// Loads o.dir and behind it o.ensemble. Throws Error likewise, and where their classes differ.
std::vector<TextModel> load_encoders(const EncoderOptions& o, Output wanted, const char* command);

// The mean of the probabilities that several models give to the same classes.
class MeanProbabilities {
 public:
  void add(const std::vector<double>& p);
  std::vector<double> mean() const;  // empty: of no model

 private:
  std::vector<double> sum_;
  int models_ = 0;
};

// One line of input; an empty one has no text.
struct InputLine {
  TextPair text;
  std::string place;  // NAME:LINE
};

// Calls `f` with some lines at a time and prints what it returns: one output a line, with its line's end.
// `keys`: the names of the two texts in JSON.
void for_lines(const EncoderOptions& o, const std::string& first, const std::string& second,
               const std::function<std::string(const std::vector<InputLine>&)>& f);

// Encodes the lines that are not empty; `which` gets their numbers. Counts those that were cut in `cut`, or
// refuses them where o.strict.
std::vector<EncodedText> encode_lines(const EncoderOptions& o, const TextModel& m,
                                      const std::vector<InputLine>& lines, std::vector<size_t>& which,
                                      int64_t& cut);

// One note on stderr where lines were cut.
void note_cut(int64_t cut, const TextModel& m);
// Likewise, of the model that cut most of them.
void note_cut(const std::vector<int64_t>& cut, const std::vector<TextModel>& models);

}  // namespace qkv
