// Tokenizers for tests of what reads tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "qkv/text/trainer.h"

namespace qkv::testing {

// WordPiece that knows these texts' words whole, or the most frequent pieces of them.
inline text::Tokenizer word_pieces(const std::vector<std::string>& texts, size_t vocab_size = 1000) {
  text::TrainerOptions options;
  options.vocab_size = vocab_size;
  options.min_frequency = 1;
  return text::train_word_piece(std::vector<std::string_view>(texts.begin(), texts.end()), options);
}

inline std::vector<std::string> tokens_of(const text::Tokenizer& tokenizer, const text::Encoding& encoding) {
  std::vector<std::string> out;
  for (const text::TokenId id : encoding.ids) out.push_back(tokenizer.id_to_token(id).value_or("?"));
  return out;
}

}  // namespace qkv::testing
