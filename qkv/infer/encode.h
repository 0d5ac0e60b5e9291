// Encodes texts as the sequences that an encoder reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/data/dataset.h"
#include "qkv/models/transformer.h"
#include "qkv/text/tokenizer.h"

namespace qkv {

// A text, or a pair of texts.
struct TextPair {
  std::string first, second;  // second is empty if there is none
};

// A text's tokens, including special ones, and the bytes that each stands for.
struct EncodedText {
  text::Encoding encoding;
  bool cut = false;  // true if the text was truncated
};

// Encodes a text for a model and truncates it to the context. Throws Error if the text has no tokens.
EncodedText encode_text(const TextPair& text, const text::Tokenizer& tokenizer, const ModelSpec& spec);

// Packs these texts into one flat batch.
ModelInput input_of(const std::vector<EncodedText>& texts, std::span<const int64_t> which);

// The first token that overlaps each word of a text, in which single spaces separate words; -1: truncated.
std::vector<int64_t> first_tokens(const text::Encoding& encoding, const std::vector<std::string>& words);

}  // namespace qkv
