#pragma once

// Unembedding: Algorithm 7.

#include "formal/notation.h"
#include "formal/softmax.h"

namespace qkv::formal {

// Algorithm 7, p = softmax(W_u e), for every column of a sequence at once as in the last line of Algorithms 8
// to 10: X [d_e x l], W_u [N_V x d_e] -> P [N_V x l], every column in Delta(V).
template <typename T>
Matrix<T> unembedding(const Matrix<T>& X, const Matrix<T>& W_u) {
  const Matrix<T> logits = W_u * X;
  return softmax(logits);
}

}  // namespace qkv::formal
