#pragma once

// Perceiver and Perceiver IO (Jaegle et al. 2021; 2022): a few latent vectors read the tokens, see each
// other, and are read by queries of the output.

#include <string>
#include <vector>

#include "formal/activation.h"
#include "formal/attention.h"
#include "formal/embedding.h"
#include "formal/normalization.h"

namespace qkv::formal {

struct PerceiverHyperparameters {
  Index N_V = 0, l_max = 0, d_e = 0;
  Index M = 0, d_z = 0;      // latents, [d_z] each
  Index L = 0, repeats = 1;  // layers of self-attention, which run so often
  bool read_again = false;   // the latents read X before each of these times
  bool one_query = false;    // one query for the whole text; else one for each position
  Index N_C = 0;             // classes, if there is one query
  struct Read {
    Index H = 1, d_attn = 1, d_mid = 1, d_mlp = 1;
    bool residual = true;  // queries are added to what they read
  };
  Read in, self, out;
  double epsilon = 1e-5;
};

// A layer by which d_q-vectors read d_s-vectors. Self-attention has no norm of what is read beside.
template <typename T>
struct PerceiverLayer {
  Vector<T> gamma_q, beta_q, gamma_s, beta_s, gamma, beta;
  MHAttentionParameters<T> W;
  Matrix<T> W_1, W_2;
  Vector<T> b_1, b_2;

  PerceiverLayer() = default;
  PerceiverLayer(const PerceiverHyperparameters::Read& r, Index d_q, Index d_s, bool self)
      : gamma_q(zeros(d_q)),
        beta_q(zeros(d_q)),
        gamma_s(zeros(self ? 0 : d_s)),
        beta_s(gamma_s),
        gamma(zeros(d_q)),
        beta(zeros(d_q)),
        W(r.H, r.d_attn, r.d_mid, d_q, d_s, d_q),
        W_1(Matrix<T>::Constant(r.d_mlp, d_q, T(0))),
        W_2(Matrix<T>::Constant(d_q, r.d_mlp, T(0))),
        b_1(zeros(r.d_mlp)),
        b_2(zeros(d_q)) {}

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    visit_parameter(prefix + "gamma_q", f, p.gamma_q...);
    visit_parameter(prefix + "beta_q", f, p.beta_q...);
    visit_parameter(prefix + "gamma_s", f, p.gamma_s...);
    visit_parameter(prefix + "beta_s", f, p.beta_s...);
    visit_parameter(prefix + "gamma", f, p.gamma...);
    visit_parameter(prefix + "beta", f, p.beta...);
    MHAttentionParameters<T>::visit(prefix, f, p.W...);
    visit_parameter(prefix + "W_1", f, p.W_1...);
    visit_parameter(prefix + "b_1", f, p.b_1...);
    visit_parameter(prefix + "W_2", f, p.W_2...);
    visit_parameter(prefix + "b_2", f, p.b_2...);
  }

 private:
  static Vector<T> zeros(Index n) { return Vector<T>::Constant(n, T(0)); }
};

template <typename T>
struct PerceiverTheta {
  PerceiverHyperparameters hyper;
  Matrix<T> W_e, W_p;  // [d_e x N_V], [d_e x l_max]
  Matrix<T> Z;         // the latents, [d_z x M]
  PerceiverLayer<T> in;
  std::vector<PerceiverLayer<T>> layer;  // L
  Matrix<T> O;                           // queries: [d_e x l_max], or [d_z x 1]
  PerceiverLayer<T> out;
  Matrix<T> W_c;  // one query: [N_C x d_z]; else W_u = W_e^T
  Vector<T> b;    // [N_C] or [N_V]

  explicit PerceiverTheta(const PerceiverHyperparameters& h)
      : hyper(h),
        W_e(zeros(h.d_e, h.N_V)),
        W_p(zeros(h.d_e, h.l_max)),
        Z(zeros(h.d_z, h.M)),
        in(h.in, h.d_z, h.d_e, false),
        layer(static_cast<std::size_t>(h.L), PerceiverLayer<T>(h.self, h.d_z, h.d_z, true)),
        O(h.one_query ? zeros(h.d_z, 1) : zeros(h.d_e, h.l_max)),
        out(h.out, h.one_query ? h.d_z : h.d_e, h.d_z, false),
        W_c(h.one_query ? zeros(h.N_C, h.d_z) : Matrix<T>()),
        b(zeros(h.one_query ? h.N_C : h.N_V, 1)) {}

  template <typename F, typename First, typename... Rest>
  static void visit(const std::string& prefix, const F& f, First& first, Rest&... rest) {
    visit_parameter(prefix + "W_e", f, first.W_e, rest.W_e...);
    visit_parameter(prefix + "W_p", f, first.W_p, rest.W_p...);
    visit_parameter(prefix + "Z", f, first.Z, rest.Z...);
    PerceiverLayer<T>::visit(prefix + "in.", f, first.in, rest.in...);
    visit_each(prefix + "layer", f, first.layer, rest.layer...);
    visit_parameter(prefix + "O", f, first.O, rest.O...);
    PerceiverLayer<T>::visit(prefix + "out.", f, first.out, rest.out...);
    visit_parameter(prefix + "W_c", f, first.W_c, rest.W_c...);
    visit_parameter(prefix + "b", f, first.b, rest.b...);
  }

 private:
  static Matrix<T> zeros(Index rows, Index columns) { return Matrix<T>::Constant(rows, columns, T(0)); }
};

// layer_norm of each column.
template <typename T>
Matrix<T> normed_columns(const Matrix<T>& X, const Vector<T>& gamma, const Vector<T>& beta, double epsilon) {
  Matrix<T> Y = X;
  for (Index t = 1; t <= X.cols(); ++t)
    column(Y, t) = layer_norm(Vector<T>(column(X, t)), gamma, beta, epsilon);
  return Y;
}

// Q <- [Q +] MHAttention(norm(Q), norm(S)), Q <- Q + MLP(norm(Q)): Q [d_q x n], S [d_s x m] -> [d_q x n].
template <typename T>
Matrix<T> perceiver_layer(const Matrix<T>& Q, const Matrix<T>& S, const PerceiverLayer<T>& theta,
                          bool residual, double epsilon) {
  const bool self = theta.gamma_s.size() == 0;
  const Matrix<T> X = normed_columns(Q, theta.gamma_q, theta.beta_q, epsilon),
                  Z = self ? X : normed_columns(S, theta.gamma_s, theta.beta_s, epsilon);
  Matrix<T> Y = MHAttention(X, Z, theta.W, bidirectional_mask(Z.cols(), X.cols()));
  if (residual) Y += Q;
  const Matrix<T> U = affine(theta.W_1, normed_columns(Y, theta.gamma, theta.beta, epsilon), theta.b_1);
  return Y + affine(theta.W_2, activate(Activation::GELU, Activation::GELU, U), theta.b_2);
}

// For each position of x, or for x as a whole, the logits of tokens or classes: x -> [N_V x length(x)] or
// [N_C x 1].
template <typename T>
Matrix<T> Perceiver(const Tokens& x, const PerceiverTheta<T>& theta) {
  const PerceiverHyperparameters& h = theta.hyper;
  Matrix<T> X(h.d_e, length(x)), Z = theta.Z;
  for (Index t = 1; t <= length(x); ++t)
    column(X, t) = token_embedding(at(x, t), theta.W_e) + Vector<T>(column(theta.W_p, t));
  for (Index r = 1; r <= h.repeats; ++r) {
    if (r == 1 || h.read_again) Z = perceiver_layer(Z, X, theta.in, h.in.residual, h.epsilon);
    for (const PerceiverLayer<T>& layer : theta.layer) Z = perceiver_layer(Z, Z, layer, true, h.epsilon);
  }
  const Matrix<T> queries = h.one_query ? theta.O : Matrix<T>(theta.O.leftCols(length(x))),
                  Y = perceiver_layer(queries, Z, theta.out, h.out.residual, h.epsilon);
  return affine(h.one_query ? theta.W_c : Matrix<T>(theta.W_e.transpose()), Y, theta.b);
}

}  // namespace qkv::formal
