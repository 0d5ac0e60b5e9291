// Texts for masked language models, for training and evaluation.
#pragma once

#include <cstdint>
#include <vector>

#include "qkv/data/masking.h"
#include "qkv/text/tokenizer.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/tasks/evaluate.h"

namespace qkv {

// `rates` completed for a vocabulary. Throws Error if it has no mask.
Masking masking_for(const text::Tokenizer& tokenizer, Masking rates);

// The pieces of a stream that have a token to mask, other than [UNK]. Each fits in `context` tokens with
// `ends` special tokens around it.
std::vector<Piece> pieces_with_words(const TokenStream& stream, const text::Tokenizer& tokenizer,
                                     int64_t context, int64_t ends = 2);

// Number of tokens of each piece with its ends.
std::vector<int64_t> lengths_of(const std::vector<Piece>& pieces);

// Seed that chooses the masked tokens in validation.
inline constexpr uint64_t kValidationMask = 0x76616c6964;  // "valid"

// Number of special tokens around and between the texts of a sequence.
inline int64_t ends_of(const Masking& masking) {
  return masking.next_sentence ? 3 : 2;
}

// Predicts the tokens that `seed` masks, the same ones every time, about `tokens` tokens at a time.
Evaluation evaluate_masked(const Transformer& model, const TokenStream& stream,
                           const std::vector<Piece>& pieces, const Masking& masking,
                           const EncoderTokens& ends, int64_t tokens, uint64_t seed = kValidationMask,
                           Communicator& ranks = single_process());

}  // namespace qkv
