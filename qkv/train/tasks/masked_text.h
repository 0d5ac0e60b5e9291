// Texts as a masked language model reads them, in training and after it.
#pragma once

#include <cstdint>
#include <vector>

#include "qkv/data/masking.h"
#include "qkv/text/tokenizer.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/tasks/evaluate.h"

namespace qkv {

// `rates` with what they need to know of a vocabulary. Throws Error where it has no mask.
Masking masking_for(const text::Tokenizer& tokenizer, Masking rates);

// The pieces of a stream that fit into `context` tokens with `ends` of them around, and have a token to hide:
// [UNK] is none.
std::vector<Piece> pieces_with_words(const TokenStream& stream, const text::Tokenizer& tokenizer,
                                     int64_t context, int64_t ends = 2);

// Tokens of each piece with its ends.
std::vector<int64_t> lengths_of(const std::vector<Piece>& pieces);

// What is hidden in validation.
inline constexpr uint64_t kValidationMask = 0x76616c6964;  // "valid"

// How many tokens stand around and between the texts of a sequence.
inline int64_t ends_of(const Masking& masking) {
  return masking.next_sentence ? 3 : 2;
}

// Predicts the tokens that `seed` hides, the same ones every time, about `tokens` tokens at a time.
Evaluation evaluate_masked(const Transformer& model, const TokenStream& stream,
                           const std::vector<Piece>& pieces, const Masking& masking,
                           const EncoderTokens& ends, int64_t tokens, uint64_t seed = kValidationMask);

}  // namespace qkv
