// A model with its tokenizer, for programs that work with text.
//   const qkv::TextModel m = qkv::load("models/gpt2");
//   qkv::GenerateOptions options = m.generation.drawing;
//   std::string text = qkv::complete(m, "Once upon a time", options);
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "qkv/infer/encode.h"
#include "qkv/infer/generation_settings.h"
#include "qkv/infer/translate.h"
#include "qkv/io/model_dir.h"
#include "qkv/io/sentence_dir.h"
#include "qkv/text/tokenizer.h"

namespace qkv {

// The result of load().
struct TextModel {
  std::unique_ptr<Transformer> model;
  text::Tokenizer tokenizer;
  SpecialIds special;
  // The settings of generation_config.json, including end tokens.
  GenerationSettings generation = {};
  bool searches = false;     // it has num_beams: continuations are found by beam search, not sampled
  std::string refused = {};  // the unsupported setting it has; empty: none
  // The modules of sentence-transformers behind it, if its directory names any.
  std::optional<SentenceModules> sentence = {};

  // Throws Error if a setting is unsupported, before any output.
  void expect_generation() const;
};

// Loads a model directory or a run. Matrices are stored in `compute`, f32 or bf16. Throws Error if the
// tokenizer does not fit the model.
TextModel load(const std::string& path, DType compute = DType::f32);

// The same; throws Error if the model is not a decoder. `ids_as_text`: also accepts a model without a
// tokenizer, whose text is its ids with spaces between them.
TextModel load_language_model(const std::string& path, DType compute = DType::f32, bool ids_as_text = false);

// A vector for each text: f32 [texts, D], of length 1 unless its directory's modules lack a norm.
Tensor embed(const TextModel& m, const std::vector<EncodedText>& texts, int64_t batch_tokens = 4096);
// The same vectors, of length 1 whatever its modules say: their inner products are cosines.
Tensor unit_embeddings(const TextModel& m, const std::vector<EncodedText>& texts,
                       int64_t batch_tokens = 4096);
// D of those vectors.
int64_t embedding_width(const TextModel& m);

// The parts that translation needs. Throws Error if the model is neither an encoder-decoder nor a decoder
// trained on pairs. `path`: for errors.
SequenceModel sequence_model(const TextModel& m, const std::string& path);

// An ensemble of these models. Throws Error if one has another vocabulary than the first. `paths`: of all,
// for errors.
Ensemble ensemble_of(const std::vector<TextModel>& models, const std::vector<std::string>& paths);

// The tokens of a text to be continued. Tokens that the tokenizer puts before it (a start token) are
// included, those after it are not. Throws Error if there are none.
std::vector<int32_t> prompt_ids(const TextModel& m, std::string_view prompt);
// Parses words as ids. Throws Error naming a word that is not an id of the model.
std::vector<int32_t> prompt_ids(const TextModel& m, const std::vector<std::string>& words);

// Called with the text that each token completes: whole characters, often empty. Returning false stops.
using TextCallback = std::function<bool(int32_t token, std::string_view text)>;

// Continues a text with a decoder, or writes the target of a text with an encoder-decoder. Returns the new
// text, up to a token of options.eos, whose own text is left out. Tokens without text are never chosen.
// Throws Error if a text is longer than an encoder-decoder can read.
std::string complete(const TextModel& m, std::string_view prompt, GenerateOptions options,
                     const TextCallback& on_text = nullptr);
// The same for a decoder, after these tokens. `engine`: of this model, which may keep what was read before.
std::string complete(const TextModel& m, const std::vector<int32_t>& prompt, GenerateOptions options,
                     const TextCallback& on_text = nullptr, Engine* engine = nullptr);

// Searches for continuations of a prompt, or for an encoder-decoder's targets. Returns at most
// settings.returned outputs, best first. Tokens without text are never chosen.
std::vector<std::string> search(const TextModel& m, std::string_view prompt,
                                const GenerationSettings& settings);

}  // namespace qkv
