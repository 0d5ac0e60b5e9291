#pragma once

// Prompting and prediction: Algorithms 14 and 15.

#include <algorithm>
#include <cmath>

#include "formal/notation.h"
#include "formal/special_tokens.h"
#include "formal/theta.h"
#include "formal/transformer.h"

namespace qkv::formal {

// q proportional to p^(1/tau), tau in [0, infinity]: p [N_V] -> q [N_V]. tau = 0, the limit, is all weight on
// the most likely token, the lowest id of several; tau = infinity is uniform. The powers are taken of p / max
// p: the same q, and a small tau cannot underflow all of it.
inline Vector<double> temper(const Vector<double>& p, double tau) {
  assert(tau >= 0);
  Index most_likely = 0;
  const double largest = p.maxCoeff(&most_likely);  // the first of several
  if (tau == 0) return Vector<double>::Unit(p.size(), most_likely);
  Vector<double> q(p.size());
  for (Index v = 0; v < p.size(); ++v) q(v) = std::pow(p(v) / largest, 1 / tau);  // 1 / infinity is 0
  return q / q.sum();
}

// A token id v in [N_V] drawn with probability q[v], by inversion: the least v with q[1] + ... + q[v] > u, u
// the next uniform number in [0, 1). (Should rounding leave the whole sum below u, the last v with q[v] > 0.)
template <typename Uniform>
int sample(const Vector<double>& q, Uniform&& uniform) {
  const double u = uniform();
  double cumulative = 0;
  int last = 0;
  for (int v = 1; v <= static_cast<int>(q.size()); ++v) {
    if (entry(q, v, 1) <= 0) continue;
    cumulative += entry(q, v, 1);
    last = v;
    if (cumulative > u) return v;
  }
  assert(last > 0);
  return last;
}

// Algorithm 14, y <- DInference(x, theta^): prompt x, length(x) >= 1 -> its continuation y, of length l_gen.
// tau in [0, infinity]; uniform() returns the next uniform number in [0, 1), one for each token.
//
// The paper's x may outgrow l_max, for which DTransformer is not defined; the last l_max tokens are then
// kept, as if they were the whole text, and p is its last column. Up to there this is line 4, p = P[:, l + i
// - 1].
template <typename Uniform>
Tokens DInference(Tokens x, const DTheta<double>& theta, Index l_gen, double tau, Uniform&& uniform) {
  const Index l = length(x);  // line 1
  assert(l >= 1);
  for (Index i = 1; i <= l_gen; ++i) {  // line 2
    const Tokens window(x.end() - std::min(length(x), theta.hyper.l_max), x.end());
    const Matrix<double> P = DTransformer(window, theta);  // line 3
    const Vector<double> p = column(P, length(window));    // line 4
    const int y = sample(temper(p, tau), uniform);         // line 5
    x.push_back(y);                                        // line 6
  }
  return Tokens(x.begin() + l, x.end());  // line 8
}

// Algorithm 15, x^ <- EDInference(z, theta^): z -> x^, from bos_token to eos_token, both included. tau and
// uniform as in Algorithm 14.
//
// The paper's loop ends at eos_token, or never; here it also ends when length(x^) is max_length, in which
// case x^ has no eos_token. max_length = 0 means l_max.
template <typename Uniform>
Tokens EDInference(const Tokens& z, const EDTheta<double>& theta, double tau, Uniform&& uniform,
                   Index max_length = 0) {
  const Index N_V = theta.hyper.N_V;
  if (max_length == 0) max_length = theta.hyper.l_max;
  Tokens x = {bos_token(N_V)};                             // line 1
  int y = 0;                                               // line 2
  while (y != eos_token(N_V) && length(x) < max_length) {  // line 3
    const Matrix<double> P = EDTransformer(z, x, theta);   // line 4
    const Vector<double> p = column(P, length(x));         // line 5
    y = sample(temper(p, tau), uniform);                   // line 6
    x.push_back(y);                                        // line 7
  }
  return x;  // line 9
}

}  // namespace qkv::formal
