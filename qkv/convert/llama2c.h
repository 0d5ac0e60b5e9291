// Models of llama2.c: a Llama 2 in one file, and its tokenizer in another.
#pragma once

#include <string>
#include <string_view>

#include "qkv/convert/foreign_model.h"

namespace qkv {

// Reads a model file: the first form, or version 1, in f32. Throws Error naming the file and what is wrong;
// the file is not trusted.
std::unique_ptr<Transformer> parse_llama2c(std::string_view bytes, const std::string& where);

// The same with the tokenizer of a file made by llama2.c's tokenizer.py, for the model's vocabulary.
ForeignModel read_llama2c(const std::string& path, const std::string& tokenizer);

// The tokenizer as a file of SentencePiece. `count`: the tokens of the model.
std::string sentencepiece_of_llama2c(std::string_view bytes, int64_t count, const std::string& where);

}  // namespace qkv
