// A model with its tokenizer, for the subcommands that deal in text.
#pragma once

#include <memory>
#include <string>

#include "qkv/infer/translate.h"
#include "qkv/io/model_dir.h"
#include "qkv/text/tokenizer.h"

namespace qkv {

struct TextModel {
  std::unique_ptr<Transformer> model;
  text::Tokenizer tokenizer;
  SpecialIds special;
};

// From a model directory or a run. `dtype`: "bf16", or anything else for f32.
TextModel load_text_model(const std::string& path, const std::string& dtype);

// The same; throws Error where the model does not continue texts.
TextModel load_language_model(const std::string& path, const std::string& dtype);

// The parts that translation needs. Throws Error where the model is no encoder-decoder. `path`: for errors.
SequenceModel sequence_model(const TextModel& m, const std::string& path);

}  // namespace qkv
