// Masked language modelling: sequences with some of their tokens hidden.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkv/data/dataset.h"

namespace qkv {

// Which tokens are hidden, and how. With random and keep 0 this is line 4 of Algorithm 12 of Phuong &
// Hutter; BERT (Devlin et al. 2019, section 3.1) has 0.1 each.
struct Masking {
  double rate = 0.15;        // share of tokens to predict
  double random = 0.1;       // share of these that are replaced by a random token
  double keep = 0.1;         // share of these that stay unchanged; the rest become `mask`
  bool whole_words = false;  // hide all tokens of a word, or none
  // Permutation LM (Yang et al. 2019, XLNet, eqs. 3 and 5, with partial prediction). Tokens to predict also
  // stay in place, and are predicted in a random order at rows of `mask` after the piece. Such a row sees
  // the tokens that are not predicted and those before it in that order.
  bool permuted = false;
  // Next-sentence prediction (Devlin et al. 2019, section 3.1). A piece is read as two texts with a
  // separator between them. For half of the pieces the second text comes from another piece, which the
  // model is to detect.
  bool next_sentence = false;
  int32_t mask = 0;           // mask_token
  int32_t vocab_size = 0;     // range of the random tokens
  std::vector<bool> special;  // by id: true if the token is never hidden and never inserted
  std::vector<bool> inner;    // by id: true if the token continues a word
};

// A piece of a stream, to be read between two special tokens.
struct Piece {
  int64_t begin, end;
};

// Cuts the documents of a stream into pieces of at most `length` tokens.
std::vector<Piece> pieces_of(const TokenStream& stream, int64_t length);

// Special tokens around a piece; -1: none. `last` also stands between two texts.
struct Surroundings {
  int32_t first = -1, last = -1;
};

// Sequence target of next-sentence prediction: the text that follows.
inline constexpr int32_t kNextText = 0;
// A text from another piece.
inline constexpr int32_t kOtherText = 1;

// Builds a batch of these pieces: tokens with some hidden, and the hidden ones as targets. A piece's mask
// and its order are a function of (seed, draw, its place in the stream). At least one token of a batch is
// hidden.
Batch masked_batch(const TokenStream& stream, std::span<const Piece> pieces, Surroundings ends,
                   const Masking& masking, uint64_t seed, uint64_t draw);

}  // namespace qkv
