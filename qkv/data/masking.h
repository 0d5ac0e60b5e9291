// Masked language modelling: sequences with some of their tokens hidden.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkv/data/dataset.h"

namespace qkv {

// What is hidden, and by what. With random and keep 0 this is line 4 of Algorithm 12 of Phuong & Hutter; BERT
// (Devlin et al. 2019, section 3.1) has 0.1 each.
struct Masking {
  double rate = 0.15;        // of the tokens are to be predicted
  double random = 0.1;       // of these stand as a random token,
  double keep = 0.1;         // of these as they are, the others as `mask`
  bool whole_words = false;  // all tokens of a word, or none
  // What is to be predicted also stands where it was, and is predicted in a random order: at a place of
  // `mask` behind the piece, that sees what is not to be predicted and what comes before it in that order
  // (permutation LM; Yang et al. 2019, XLNet, eqs. 3 and 5, with partial prediction).
  bool permuted = false;
  // A piece is read as two texts with a separator between them; of half of the pieces the second text is
  // another piece's, which is to be told (next-sentence prediction; Devlin et al. 2019, section 3.1).
  bool next_sentence = false;
  int32_t mask = 0;           // mask_token
  int32_t vocab_size = 0;     // of the random tokens
  std::vector<bool> special;  // of each id: never hidden, never put in place of another
  std::vector<bool> inner;    // of each id: continues the word before it
};

// A piece of a stream, to be read between an opening and a closing token.
struct Piece {
  int64_t begin, end;
};

// The documents of a stream in pieces of at most `length` tokens.
std::vector<Piece> pieces_of(const TokenStream& stream, int64_t length);

// What stands around a piece; -1: nothing. `last` also stands between two texts.
struct Surroundings {
  int32_t first = -1, last = -1;
};

// Which text follows, as sequence_targets have it.
inline constexpr int32_t kNextText = 0;
// A text from elsewhere.
inline constexpr int32_t kOtherText = 1;

// These pieces as one batch: tokens with some hidden, the hidden ones as targets. A piece's mask, and its
// order, is a function of (seed, draw, its place in the stream); at least one token of a batch is hidden.
Batch masked_batch(const TokenStream& stream, std::span<const Piece> pieces, Surroundings ends,
                   const Masking& masking, uint64_t seed, uint64_t draw);

}  // namespace qkv
