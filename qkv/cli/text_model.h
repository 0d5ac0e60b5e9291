// A model with its tokenizer, for the subcommands that deal in text.
#pragma once

#include <memory>
#include <string>

#include "qkv/io/model_dir.h"
#include "qkv/text/tokenizer.h"

namespace qkv {

struct TextModel {
  std::unique_ptr<Decoder> model;
  text::Tokenizer tokenizer;
  SpecialIds special;
};

// From a model directory or a run. `dtype`: "bf16", or anything else for f32.
TextModel load_text_model(const std::string& path, const std::string& dtype);

}  // namespace qkv
