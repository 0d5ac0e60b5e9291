#pragma once

// Recurrences, which mixed tokens before attention and may stand in its place in a block.

#include <cmath>

#include "formal/named.h"
#include "formal/notation.h"

namespace qkv::formal {

// sigma(x) = 1 / (1 + e^-x).
template <typename T>
T sigma(const T& x) {
  using std::exp;
  return 1.0 / (1.0 + exp(-x));
}

// The cells whose recurrences are known.
enum class RecurrentCell { LSTM, GRU };

// The parameters of a recurrence of d numbers over vectors of d_x: those of its gates one above another,
// n = 4 of an LSTM, 3 of a GRU.
template <typename T>
struct RecurrenceParameters {
  Matrix<T> W;  // [n d x d_x]
  Matrix<T> U;  // [n d x d]
  Vector<T> b;  // [n d]
};

// h[t] = o tanh(c[t]), c[t] = f c[t-1] + i tanh(g), where the gates i, f, o (of sigma) and g are made of x[t]
// and h[t-1] (Hochreiter & Schmidhuber 1997; the forget gate f is that of Gers et al. 2000).
// X [d_x x l] -> [d x l], from h[0] = c[0] = 0.
template <typename T>
Matrix<T> LSTM(const Matrix<T>& X, const RecurrenceParameters<T>& theta) {
  const Index d = theta.U.cols(), l = X.cols();
  named("input", affine(theta.W, X, theta.b));
  Matrix<T> H = Matrix<T>::Constant(d, l, T(0)), states = Matrix<T>::Constant(2 * d, l, T(0));
  Vector<T> h = Vector<T>::Constant(d, T(0)), c = h;
  for (Index t = 1; t <= l; ++t) {
    const Vector<T> a = theta.W * column(X, t) + theta.U * h + theta.b;
    for (Index j = 0; j < d; ++j) {
      using std::tanh;
      const T i = sigma(a[j]), f = sigma(a[d + j]), o = sigma(a[2 * d + j]), g = tanh(a[3 * d + j]);
      c[j] = f * c[j] + i * g;
      h[j] = o * tanh(c[j]);
    }
    column(H, t) = h;
    column(states, t) << h, c;
  }
  named("states", states);
  return H;
}

// h[t] = (1 - z) h[t-1] + z tanh(W_n x[t] + U_n (r h[t-1]) + b_n), where z and r are of sigma (Cho et al.
// 2014, as Bahdanau et al. 2015, A.1.1, print it). X [d_x x l] -> [d x l], from h[0] = 0.
template <typename T>
Matrix<T> GRU(const Matrix<T>& X, const RecurrenceParameters<T>& theta) {
  const Index d = theta.U.cols(), l = X.cols();
  named("input", affine(theta.W, X, theta.b));
  const Matrix<T> U_zr = theta.U.topRows(2 * d), U_n = theta.U.bottomRows(d);
  Matrix<T> H = Matrix<T>::Constant(d, l, T(0));
  Vector<T> h = Vector<T>::Constant(d, T(0));
  for (Index t = 1; t <= l; ++t) {
    const Vector<T> a = theta.W * column(X, t) + theta.b, u = U_zr * h;
    Vector<T> z(d), r_h(d);
    for (Index j = 0; j < d; ++j) {
      z[j] = sigma(T(a[j] + u[j]));
      r_h[j] = sigma(T(a[d + j] + u[d + j])) * h[j];
    }
    const Vector<T> n = U_n * r_h;
    for (Index j = 0; j < d; ++j) {
      using std::tanh;
      h[j] = (1.0 - z[j]) * h[j] + z[j] * tanh(T(a[2 * d + j] + n[j]));
    }
    column(H, t) = h;
  }
  return named("states", H);
}

template <typename T>
Matrix<T> recur(RecurrentCell cell, const Matrix<T>& X, const RecurrenceParameters<T>& theta) {
  return cell == RecurrentCell::LSTM ? LSTM(X, theta) : GRU(X, theta);
}

// Both ways, one above the other (Schuster & Paliwal 1997): X [d_x x l] -> [2 d x l].
template <typename T>
Matrix<T> recur_both_ways(RecurrentCell cell, const Matrix<T>& X, const RecurrenceParameters<T>& forward,
                          const RecurrenceParameters<T>& backward) {
  const Index d = forward.U.cols();
  Matrix<T> H(2 * d, X.cols());
  named("forward.input", affine(forward.W, X, forward.b));
  named("backward.input", affine(backward.W, X, backward.b));
  H.topRows(d) = recur(cell, X, forward);
  const Matrix<T> turned = X.rowwise().reverse();
  H.bottomRows(d) = recur(cell, turned, backward).rowwise().reverse();
  return H;
}

}  // namespace qkv::formal
