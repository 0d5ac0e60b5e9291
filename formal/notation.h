#pragma once

// The paper's notation in C++: Phuong & Hutter, "Formal Algorithms for Transformers", arXiv 2207.09238v1.
//
// Everything below formal/ is the specification of the project, executable. It follows the paper line by
// line, and does nothing for speed: vectors are columns, a sequence of vectors is a matrix with one token per
// column, and a weight matrix stands left of what it acts on. It knows nothing of the rest of the project.
//
// The paper counts from 1: token ids run over [N_V] = {1, ..., N_V} and positions over [l] = {1, ..., l}.
// So do the ids and positions here. C++ counts from 0, and the two meet only in the few functions of this
// file that take one element or column: at(x, t) is x[t], column(M, t) is M[:, t], entry(M, i, j) is M[i, j].
//
// T is the scalar: double, or ADOL-C's adouble where gradients are wanted (formal/gradient.h).

#include <Eigen/Core>
#include <cassert>
#include <cstddef>
#include <vector>

namespace qkv::formal {

using Index = Eigen::Index;

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
template <typename T>
using Vector = Eigen::Matrix<T, Eigen::Dynamic, 1>;

// x in V*: a sequence of token ids, each in {1, ..., N_V}.
using Tokens = std::vector<int>;

// length(x).
inline Index length(const Tokens& x) {
  return static_cast<Index>(x.size());
}

// x[t], t in {1, ..., length(x)}.
inline int at(const Tokens& x, Index t) {
  assert(1 <= t && t <= length(x));
  return x[static_cast<std::size_t>(t - 1)];
}

// M[:, t], t in {1, ..., columns of M}; may be assigned to.
template <typename M>
auto column(M& matrix, Index t) {
  return matrix.col(t - 1);
}

// M[i, j], both from 1; may be assigned to.
template <typename M>
decltype(auto) entry(M& matrix, Index i, Index j) {
  return matrix(i - 1, j - 1);
}

// W X + b 1^T: W [d_out x d_in], X [d_in x l], b [d_out] -> [d_out x l]. An empty b is an absent one, i.e. 0.
template <typename T>
Matrix<T> affine(const Matrix<T>& W, const Matrix<T>& X, const Vector<T>& b) {
  Matrix<T> Y = W * X;
  if (b.size() != 0) Y.colwise() += b;
  return Y;
}

// The number that a scalar holds, without its derivatives: x itself, or the value of an ADOL-C scalar.
template <typename T>
double value(const T& x) {
  if constexpr (requires { x.value(); }) {
    return x.value();
  } else {
    return x;
  }
}

}  // namespace qkv::formal
