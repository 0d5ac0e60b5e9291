#pragma once

// The perceptron of a layer, and mixtures of experts.

#include <cmath>
#include <limits>
#include <vector>

#include "formal/activation.h"
#include "formal/named.h"
#include "formal/rwkv.h"
#include "formal/softmax.h"
#include "formal/variations/parameters.h"

namespace qkv::formal {

// A perceptron, gated or of several hidden layers where the hyperparameters say so.
template <typename T>
Matrix<T> perceptron(const Matrix<T>& given, const VariedPerceptron<T>& p, const VariedHyperparameters& h) {
  const Matrix<T> X = h.channel_mix == ChannelMix::none     ? given
                      : h.channel_mix == ChannelMix::RWKV_4 ? lerp(shifted(given), given, p.mu_k)
                                                            : lerp(given, shifted(given), p.mu_k);
  const auto f = [&](const Matrix<T>& A) {
    if (!h.xIELU) return activate(h.activation, Activation::GELU, A);
    return Matrix<T>(A.unaryExpr([&](const T& x) { return xIELU(x, p.alpha[0], p.alpha[1]); }));
  };
  const auto limited = [&](const Matrix<T>& A, double least) {
    return Matrix<T>(A.unaryExpr([&](const T& x) {
      return value(x) > h.gate_limit ? T(h.gate_limit) : value(x) < least ? T(least) : x;
    }));
  };
  Matrix<T> A = named("up", affine(p.mlp.W_mlp1, X, p.mlp.b_mlp1));
  if (h.gate_limit > 0) A = limited(A, -std::numeric_limits<double>::infinity());
  A = f(A);
  if (h.gated) {
    Matrix<T> V = named("gated", affine(p.W_g, X, p.b_g));
    if (h.gate_limit > 0) V = limited(V, -h.gate_limit).unaryExpr([](const T& v) { return T(v + 1.0); });
    A = Matrix<T>(A.cwiseProduct(V));
  }
  for (std::size_t i = 0; i < p.W_further.size(); ++i) A = f(affine(p.W_further[i], A, p.b_further[i]));
  const Matrix<T> Y = affine(p.mlp.W_mlp2, named("hidden", A), p.mlp.b_mlp2);
  if (h.channel_mix != ChannelMix::RWKV_4) return Y;
  const Matrix<T> R = p.W_r * lerp(shifted(given), given, p.mu_r);
  return R.unaryExpr([](const T& r) { return sigma(r); }).cwiseProduct(Y);
}

// The weight of each expert for each token, [E x l] (Shazeer et al. 2017, section 2.1; Fedus et al. 2021,
// section 2.1): its affinity where that is among the k highest, else 0.
template <typename T>
Matrix<T> expert_weights(const Matrix<T>& X, const Matrix<T>& W_r, const Vector<T>& b_r,
                         const VariedHyperparameters& h) {
  const Matrix<T> scores = named("router", affine(W_r, X, b_r));
  Matrix<T> G = h.sigmoid_affinities ? Matrix<T>(scores.unaryExpr([](const T& x) { return sigmoid(x); }))
                                     : softmax(scores);
  for (Index t = 1; t <= X.cols(); ++t) {
    T sum = 0;
    std::vector<bool> kept;
    for (Index e = 1; e <= h.E; ++e) {
      Index better = 0;
      for (Index other = 1; other <= h.E; ++other)
        better += value(entry(G, other, t)) > value(entry(G, e, t));
      kept.push_back(better < h.k);
      if (kept.back()) sum += entry(G, e, t);
    }
    for (Index e = 1; e <= h.E; ++e)
      entry(G, e, t) = kept[static_cast<std::size_t>(e - 1)]
                           ? T(h.expert_scale * entry(G, e, t) / (h.renormalized ? sum : T(1)))
                           : T(0);
  }
  return named("weights", G);
}

// The perceptron of layer l, from 0, or the sum over all its experts.
template <typename T>
Matrix<T> varied_MLP(const Matrix<T>& X, const VariedLayer<T>& layer, std::size_t l,
                     const VariedHyperparameters& h) {
  if (!h.has_experts(l)) return perceptron(X, layer.mlp, h);
  const Matrix<T> G = expert_weights(X, layer.W_r, layer.b_r, h);
  Matrix<T> Y = Matrix<T>::Constant(X.rows(), X.cols(), T(0));
  for (Index e = 0; e < h.E; ++e) {
    const VariedPerceptron<T>& expert = layer.expert[static_cast<std::size_t>(e)];
    const Scope scope(indexed("expert", static_cast<std::size_t>(e + 1)));
    if (!h.input_weighted) {
      Y += perceptron(X, expert, h) * G.row(e).asDiagonal();
      continue;
    }
    const Matrix<T> outputs = perceptron(Matrix<T>(X * G.row(e).asDiagonal()), expert, h);
    for (Index t = 1; t <= X.cols(); ++t)
      if (value(entry(G, e + 1, t)) > 0) column(Y, t) += column(outputs, t);
  }
  if (h.d_shared == 0) return Y;
  const Scope scope("shared");
  Matrix<T> S = perceptron(X, layer.shared, h);
  if (h.shared_gated) {
    const Matrix<T> logits = layer.w_shared * X;
    for (Index t = 1; t <= X.cols(); ++t) column(S, t) *= sigmoid<T>(entry(logits, 1, t));
  }
  return Y + S;
}

}  // namespace qkv::formal
