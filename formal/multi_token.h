#pragma once

// Multi-token prediction behind Algorithm 10: a vector that was unembedded into the next token's
// probabilities is processed further, to predict the tokens after that (Wikipedia, "Transformer (deep
// learning architecture)"; DeepSeek-AI 2024, DeepSeek-V3, section 2.2; Gloeckle et al. 2024).

#include <string>
#include <vector>

#include "formal/loss.h"
#include "formal/theta.h"
#include "formal/transformer.h"

namespace qkv::formal {

// Module k: a layer, the norm of h^k, and for MTPForm::joined the norms of what M = M_k [d_e x 2 d_e] joins.
template <typename T>
struct MTPModule {
  Layer<T> layer;
  NormalizationParameters<T> norm, norm_e, norm_h;
  Matrix<T> M;

  MTPModule() = default;
  explicit MTPModule(const Hyperparameters& h) : layer(h), norm(h.normalization, h.d_e) {
    if (h.form != MTPForm::joined) return;
    norm_e = norm_h = norm;
    M = Matrix<T>::Constant(h.d_e, 2 * h.d_e, T(0));
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    Layer<T>::visit(prefix, f, p.layer...);
    NormalizationParameters<T>::visit(prefix, "", f, p.norm...);
    NormalizationParameters<T>::visit(prefix, "_e", f, p.norm_e...);
    NormalizationParameters<T>::visit(prefix, "_h", f, p.norm_h...);
    visit_parameter(prefix + "M", f, p.M...);
  }
};

// theta of Algorithm 10 and of K modules; module[k - 1] is module k.
template <typename T>
struct MTPTheta : DTheta<T> {
  std::vector<MTPModule<T>> module;

  explicit MTPTheta(const Hyperparameters& h)
      : DTheta<T>(h), module(static_cast<std::size_t>(h.K), MTPModule<T>(this->hyper)) {}

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    DTheta<T>::visit(prefix, f, p...);
    visit_each(prefix + "module", f, p.module...);
  }
};

// P^1, ..., P^K of x, of length l: column t of P^k [N_V x (l - k)] is P(x[t+1+k] | x[1:t]), for joined
// modules P(x[t+1+k] | x[1:t+k]). With h^0 = X of Algorithm 10, line 10, without its last columns,
//     h^k = Layer_k(h^(k-1)), or of h^0, or of M_k [norm(W_e[:, x[t+k]]); norm(h^(k-1)_t)]
//     P^k = softmax(W_u norm(h^k)).
template <typename T>
std::vector<Matrix<T>> MTPTransformer(const Tokens& x, const MTPTheta<T>& theta) {
  const Hyperparameters& hyper = theta.hyper;
  const Index l = length(x);
  const Matrix<T> h_0 = DTransformer_decode(x, unidirectional_mask(l, l), theta);
  Matrix<T> h = h_0;
  std::vector<Matrix<T>> P;
  for (Index k = 1; k <= hyper.K && k < l; ++k) {
    const MTPModule<T>& module = theta.module[static_cast<std::size_t>(k - 1)];
    h = (hyper.form == MTPForm::parallel ? h_0 : h).leftCols(l - k).eval();
    if (hyper.form == MTPForm::joined) {
      Matrix<T> E(hyper.d_e, l - k);
      for (Index t = 1; t <= l - k; ++t) column(E, t) = token_embedding(at(x, t + k), theta.embedding.W_e);
      Matrix<T> both(2 * hyper.d_e, l - k);
      both << normalize(E, module.norm_e, hyper), normalize(h, module.norm_h, hyper);
      h = module.M * both;
    }
    h = DTransformer_layer(h, module.layer, unidirectional_mask(l - k, l - k), hyper);
    P.push_back(unembedding(normalize(h, module.norm, hyper), unembedding_matrix(theta.embedding, hyper)));
  }
  return P;
}

// Algorithm 13's loss of x, and lambda / K sum_k L^k with L^k = -sum_{t=1}^{l-1-k} log P^k[x[t+1+k], t].
template <typename T>
T MTPLoss(const Tokens& x, double lambda, const MTPTheta<T>& theta) {
  using std::log;
  T loss = DLoss(x, theta), further = 0;
  const std::vector<Matrix<T>> P = MTPTransformer(x, theta);
  for (Index k = 1; k <= static_cast<Index>(P.size()); ++k)
    for (Index t = 1; t <= length(x) - 1 - k; ++t)
      further -= log(entry(P[static_cast<std::size_t>(k - 1)], at(x, t + 1 + k), t));
  return loss + lambda / static_cast<double>(theta.hyper.K) * further;
}

}  // namespace qkv::formal
