#pragma once

// Mixers other than self-attention.

#include <string>

#include "formal/recurrence.h"
#include "formal/variations/hyperparameters.h"
#include "formal/variations/parameters.h"

namespace qkv::formal {

// The mean of each column and those before it.
template <typename T>
Matrix<T> running_mean(const Matrix<T>& X) {
  Matrix<T> Y = X;
  for (Index t = 2; t <= X.cols(); ++t)
    column(Y, t) =
        (column(Y, t - 1) * T(static_cast<double>(t - 1)) + column(X, t)) / T(static_cast<double>(t));
  return Y;
}

// X [d_e x l] -> [d_e x l]: a recurrence from a state of zeros, of an encoder both ways; or W_o of the means
// of W_v X (Zhang et al. 2018). REQUIRES: the mixer is not attention.
template <typename T>
Matrix<T> varied_mixer(const Matrix<T>& X, const VariedMixer<T>& theta, const VariedHyperparameters& h) {
  if (h.mixer == Mixer::average)
    return affine(theta.W_o, running_mean(named("values", affine(theta.W_v, X, theta.b_v))), theta.b_o);
  const RecurrentCell cell = h.mixer == Mixer::LSTM ? RecurrentCell::LSTM : RecurrentCell::GRU;
  return h.bidirectional ? recur_both_ways(cell, X, theta.forward, theta.backward)
                         : recur(cell, X, theta.forward);
}

}  // namespace qkv::formal
