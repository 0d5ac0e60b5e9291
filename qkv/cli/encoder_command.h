// Options and helpers that the subcommands with an encoder share.
#pragma once

#include <functional>
#include <string>
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

// Declares them, with those of the text input.
void add_encoder_options(Command& command, EncoderOptions& o);

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

// Encodes the texts that are not empty; `which` gets their numbers. Counts those that were cut in `cut`, or
// refuses them where o.strict.
std::vector<EncodedText> encode_texts(const EncoderOptions& o, const TextModel& m,
                                      const std::vector<InputText>& texts, std::vector<size_t>& which,
                                      int64_t& cut);

// One note on stderr where texts were cut.
void note_cut(int64_t cut, const TextModel& m);
// Likewise, of the model that cut most of them.
void note_cut(const std::vector<int64_t>& cut, const std::vector<TextModel>& models);

}  // namespace qkv
