#pragma once

// Norms of every kind.

#include <cmath>

#include "formal/normalization.h"
#include "formal/variations/parameters.h"

namespace qkv::formal {

// The norm of each column: X [d x l] -> [d x l].
template <typename T>
Matrix<T> varied_normalize(const Matrix<T>& X, const NormalizationParameters<T>& n,
                           const VariedHyperparameters& h) {
  Matrix<T> X_hat(X.rows(), X.cols());
  for (Index t = 1; t <= X.cols(); ++t) {
    const Vector<T> e = column(X, t);
    if (h.norm_kind == NormKind::capsule) {
      using std::sqrt;
      const T squared = e.squaredNorm() + h.epsilon;
      column(X_hat, t) = e * T(sqrt(squared) / (1.0 + squared));
      continue;
    }
    Vector<T> gamma = n.gamma;
    if (h.norm_kind == NormKind::ScaleNorm) gamma = Vector<T>::Constant(e.size(), n.gamma[0]);
    if (h.norm_kind == NormKind::plus_one || h.norm_kind == NormKind::layer_plus_one) gamma.array() += T(1);
    const bool rms = h.norm_kind == NormKind::RMSnorm || h.norm_kind == NormKind::plus_one ||
                     h.norm_kind == NormKind::ScaleNorm;
    column(X_hat, t) = rms ? RMSnorm(e, gamma, h.epsilon) : layer_norm(e, gamma, n.beta, h.epsilon);
  }
  return X_hat;
}

}  // namespace qkv::formal
