// Rank files of tiktoken. Each line has a token's bytes in base64 and its rank, which is its id.
#pragma once

#include <string>
#include <string_view>

#include "qkv/text/tokenizer_parts.h"

namespace qkv::text {

// True if the contents begin like a rank file. SentencePiece's models may have the same names.
bool is_tiktoken_file(std::string_view contents);

// The tokenizer of a rank file. The file has neither the pre-tokenization pattern nor the special tokens.
// Both follow from its name: gpt2, r50k_base, p50k_base, cl100k_base, o200k_base, qwen, or tokenizer.model,
// which is Llama 3's. Throws Error for other names. Two tokens are joined wherever that makes a token, the
// one of lowest rank first.
TokenizerParts tiktoken_parts(std::string_view contents, const std::string& path);

}  // namespace qkv::text
