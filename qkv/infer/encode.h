// From texts to the sequences that an encoder reads.
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
  std::string first, second;  // second empty: there is none
};

// A text's tokens with their special ones, and the bytes that each stands for.
struct EncodedText {
  text::Encoding encoding;
  bool cut = false;  // it was longer than the model can read
};

// Encodes for a model: cut to its context. Throws Error where
// no token comes of the text.
EncodedText encode_text(const TextPair& text, const text::Tokenizer& tokenizer, const ModelSpec& spec);

// These texts as one flat batch.
ModelInput input_of(const std::vector<EncodedText>& texts, std::span<const int64_t> which);

// The first token that overlaps each word of a text of words with single spaces between them; -1: it was cut
// away.
std::vector<int64_t> first_tokens(const text::Encoding& encoding, const std::vector<std::string>& words);

}  // namespace qkv
