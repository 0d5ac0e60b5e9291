// Rank files of tiktoken: a line for each token, its bytes in base64 and its rank, which is its id.
#pragma once

#include <string>
#include <string_view>

#include "qkv/text/tokenizer_parts.h"

namespace qkv::text {

// Whether a file begins as these do. SentencePiece's models may have the same names.
bool is_tiktoken_file(std::string_view contents);

// The tokenizer of a rank file. Where pieces begin and end, and which tokens are special, is not in it: both
// are known by the file's name (gpt2, r50k_base, p50k_base, cl100k_base, o200k_base, qwen; tokenizer.model is
// Llama 3's); others are refused. Two tokens are joined wherever that makes a token, that of the lowest rank
// first.
TokenizerParts tiktoken_parts(std::string_view contents, const std::string& path);

}  // namespace qkv::text
