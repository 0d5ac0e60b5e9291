#pragma once

// The three special tokens of section 4, the last three ids of the vocabulary [N_V]. Ordinary tokens are 1,
// ..., N_V - 3.

#include "formal/notation.h"

namespace qkv::formal {

inline int mask_token(Index N_V) {
  return static_cast<int>(N_V - 2);
}  // for masked language modelling, Alg. 12
inline int bos_token(Index N_V) {
  return static_cast<int>(N_V - 1);
}  // the beginning of a sequence
inline int eos_token(Index N_V) {
  return static_cast<int>(N_V);
}  // the end of a sequence

// A text's representation: its token ids preceded by bos_token and followed by eos_token (section 4).
inline Tokens with_bos_and_eos(const Tokens& text, Index N_V) {
  Tokens x = {bos_token(N_V)};
  x.insert(x.end(), text.begin(), text.end());
  x.push_back(eos_token(N_V));
  return x;
}

}  // namespace qkv::formal
