// A model with its tokenizer: what a program that deals in text loads.
//   const qkv::TextModel m = qkv::load("models/gpt2");
//   qkv::GenerateOptions options = m.generation.drawing;
//   std::string text = qkv::complete(m, "Once upon a time", options);
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "qkv/infer/generation_settings.h"
#include "qkv/infer/translate.h"
#include "qkv/io/model_dir.h"
#include "qkv/text/tokenizer.h"

namespace qkv {

// What load() gives.
struct TextModel {
  std::unique_ptr<Transformer> model;
  text::Tokenizer tokenizer;
  SpecialIds special;
  // How the model's makers generate: what generation_config.json says, the ends of texts included.
  GenerationSettings generation = {};
  bool searches = false;     // it says num_beams: continuations are searched for, not drawn
  std::string refused = {};  // what it asks for and is not supported; empty: nothing

  // Throws Error where something is refused: before anything is written.
  void expect_generation() const;
};

// From a model directory or a run. Matrices are held in `compute`, f32 or bf16. Throws Error where the
// tokenizer does not fit the model.
TextModel load(const std::string& path, DType compute = DType::f32);

// The same; throws Error where the model does not continue texts. `ids_as_text`: a model without a tokenizer
// is taken, whose text is its ids with spaces between them.
TextModel load_language_model(const std::string& path, DType compute = DType::f32, bool ids_as_text = false);

// The parts that translation needs. Throws Error where the model is no encoder-decoder. `path`: for errors.
SequenceModel sequence_model(const TextModel& m, const std::string& path);

// The first of these models with the others beside it. Throws Error where one does not read and write the
// first one's tokens. `paths`: of all, for errors.
Ensemble ensemble_of(const std::vector<TextModel>& models, const std::vector<std::string>& paths);

// The tokens of a text that is to be continued: what the tokenizer puts before one (a start token) included,
// what it puts behind left out. Throws Error where there are none.
std::vector<int32_t> prompt_ids(const TextModel& m, std::string_view prompt);
// The ids that these words spell. Throws Error naming one that is no id of the model.
std::vector<int32_t> prompt_ids(const TextModel& m, const std::vector<std::string>& words);

// Called with the text that each token settles, which is whole characters and often nothing; false ends.
using TextCallback = std::function<bool(int32_t token, std::string_view text)>;

// What a decoder writes after a text, without the text itself, or what an encoder-decoder writes for it; up
// to a token of options.eos, whose own text is left out. Tokens without text are never chosen. Throws Error
// where a text is longer than an encoder-decoder can read.
std::string complete(const TextModel& m, std::string_view prompt, GenerateOptions options,
                     const TextCallback& on_text = nullptr);
// The same of a decoder after these tokens.
std::string complete(const TextModel& m, const std::vector<int32_t>& prompt, GenerateOptions options,
                     const TextCallback& on_text = nullptr);

// Searches for texts behind a prompt, or for an encoder-decoder's targets, best first: settings.returned
// outputs at most. Tokens without text are never chosen.
std::vector<std::string> search(const TextModel& m, std::string_view prompt,
                                const GenerationSettings& settings);

}  // namespace qkv
