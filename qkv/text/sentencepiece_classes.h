// The tokenizers that Hugging Face's transformers builds around SentencePiece's models.
#pragma once

#include <array>
#include <string>

#include "qkv/text/tokenizer_parts.h"

namespace qkv::text {

// File names of models in directories.
inline constexpr std::array<const char*, 3> kSentencePieceNames = {"tokenizer.model", "spiece.model",
                                                                   "sentencepiece.bpe.model"};

// Builds a tokenizer from one .model file and any of tokenizer_config.json, special_tokens_map.json and
// added_tokens.json. tokenizer_class is one of LlamaTokenizer (the default for tokenizer.model),
// T5Tokenizer, AlbertTokenizer, XLNetTokenizer and XLMRobertaTokenizer, which behave like the Python
// classes, or SentencePieceProcessor, the library itself. Without a class, control symbols spelt out in a
// text count as tokens, and texts get no special tokens. `place` names the files in errors.
TokenizerParts sentencepiece_parts(TokenizerFiles files, const std::string& place);

// The model in the bytes of a .model file, run as the library does; errors call it `name`.
TokenizerParts plain_sentencepiece_parts(std::string file, const std::string& name);

// Reads the files of a directory; returns an empty list if it has no model.
TokenizerFiles read_sentencepiece_files(const std::string& path);

}  // namespace qkv::text
