// The tokenizers that Hugging Face's transformers builds around SentencePiece's models.
#pragma once

#include <array>
#include <string>

#include "qkv/text/tokenizer_parts.h"

namespace qkv::text {

// What models are called in directories.
inline constexpr std::array<const char*, 3> kSentencePieceNames = {"tokenizer.model", "spiece.model",
                                                                   "sentencepiece.bpe.model"};

// From files: one .model, and tokenizer_config.json, special_tokens_map.json and added_tokens.json where
// there are any. tokenizer_class is one of LlamaTokenizer (what tokenizer.model means without a class),
// T5Tokenizer, AlbertTokenizer, XLNetTokenizer and XLMRobertaTokenizer, run as the classes in Python that
// these names mean, or // SentencePieceProcessor, the library itself. Without a class, control symbols spelt
// out in a text count as tokens, and nothing is put around texts. `place` is what errors call the whole.
TokenizerParts sentencepiece_parts(TokenizerFiles files, const std::string& place);

// The model in the bytes of a .model file as the library runs it; errors call it `name`.
TokenizerParts plain_sentencepiece_parts(std::string file, const std::string& name);

// Reads the files of a directory; empty when it has no model.
TokenizerFiles read_sentencepiece_files(const std::string& path);

}  // namespace qkv::text
