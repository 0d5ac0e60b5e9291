// The lists of a tokenizer's metadata, before they have the form of GGUF.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/io/gguf/tokenizer.h"
#include "qkv/io/gguf/tokenizer_vocab.h"

namespace qkv::gguf {

// The tokenizer to write, taken apart.
struct TokenizerSource {
  const GgufTokenizer& from;
  Json document;  // its tokenizer.json
  Json config;    // its tokenizer_config.json
  Json own;       // "gguf" in it; null if the tokenizer is not from a GGUF file
};

// Lists by id, and what else a kind of model needs.
struct TokenizerLists {
  std::string model, pre = "default";
  std::vector<std::string> tokens;
  std::vector<double> scores;  // empty: none
  std::vector<TokenType> types;
  std::vector<std::string> merges = {};
  std::vector<std::pair<std::string, GgufValue>> flags = {};
};

template <typename... Args>
[[noreturn]] void fail_to_express(fmt::format_string<Args...> format, Args&&... args) {
  fail("GGUF cannot express this tokenizer: {}", fmt::format(format, std::forward<Args>(args)...));
}

// A file that the document of a SentencePiece model holds.
std::string embedded_file(const Json& document, const std::string& name);

// Adds the key of a map of characters unless it is empty.
void append_charsmap(const std::string& charsmap, TokenizerLists& lists);

// Fill in all but the tokens and types, which are those of the vocabulary and its added tokens; they may
// change these, too. Throw Error with the reason if GGUF cannot express the tokenizer.
void put_byte_level(const TokenizerSource& source, TokenizerLists& lists);   // "gpt2"
void put_word_pieces(const TokenizerSource& source, TokenizerLists& lists);  // "bert"
void put_sentencepiece(const TokenizerSource& source,
                       TokenizerLists& lists);  // "llama" and "t5", a .model file
void put_scored_merges(const TokenizerSource& source, TokenizerLists& lists);  // "llama", of BPE with bytes
void put_unigram(const TokenizerSource& source, TokenizerLists& lists);        // "t5"

}  // namespace qkv::gguf
