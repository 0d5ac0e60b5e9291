#pragma once

// G: a transformer as one function from a token sequence to the distribution of the next token, after C. Jess
// Riedel, "Compact precise definition of a transformer function", with the variations that he lists at its
// end.
//
// His notation, not Phuong & Hutter's: hidden states are rows, X in R^(T x D_E) has one token per row, and
// weights stand right of what they act on, except in the feed-forward network, whose matrices stand left of a
// column. As in the rest of formal/, ids and positions count from 1.

#include <cmath>
#include <string>
#include <vector>

#include "formal/activation.h"
#include "formal/normalization.h"
#include "formal/notation.h"
#include "formal/parameters.h"
#include "formal/softmax.h"

namespace qkv::formal::riedel {

// His hyperparameters, and his variations; the defaults are the definition itself.
struct Hyperparameters {
  Index V = 0;     // vocabulary size
  Index L = 0;     // layers
  Index T = 0;     // sequence length
  Index H = 0;     // heads
  Index D_E = 0;   // embedding
  Index D_QK = 0;  // queries and keys of one head
  Index D_VO = 0;  // values and outputs of one head
  Index D_FF = 0;  // feed-forward

  bool normalize_branch = false;   // normalise the change before it is added, not the sum as in eq. (6)
  bool affine = false;             // LayerNorm(z) .* gamma + beta
  bool masked = false;             // position t attends to positions up to t only
  bool biases = false;             // c_Q, c_K, c_V, c_O
  bool tied = false;               // W_une = W_emb^T
  bool fourier_positions = false;  // W_pos fixed, and any sequence length
  Index hidden_layers = 1;         // in the feed-forward network
  Activation nonlinearity = Activation::ReLU;
};

// One head h of one layer l: W_Q, W_K [D_E x D_QK], W_V, W_O [D_E x D_VO]; the biases c_Q, c_K [D_QK], c_V
// [D_VO], c_O [D_E] are empty unless `biases` is set.
template <typename T>
struct Head {
  Matrix<T> W_Q, W_K, W_V, W_O;
  Vector<T> c_Q, c_K, c_V, c_O;

  explicit Head(const Hyperparameters& h)
      : W_Q(Matrix<T>::Constant(h.D_E, h.D_QK, T(0))),
        W_K(Matrix<T>::Constant(h.D_E, h.D_QK, T(0))),
        W_V(Matrix<T>::Constant(h.D_E, h.D_VO, T(0))),
        W_O(Matrix<T>::Constant(h.D_E, h.D_VO, T(0))) {
    if (!h.biases) return;
    c_Q = c_K = Vector<T>::Constant(h.D_QK, T(0));
    c_V = Vector<T>::Constant(h.D_VO, T(0));
    c_O = Vector<T>::Constant(h.D_E, T(0));
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    visit_parameter(prefix + "W_Q", f, p.W_Q...);
    visit_parameter(prefix + "c_Q", f, p.c_Q...);
    visit_parameter(prefix + "W_K", f, p.W_K...);
    visit_parameter(prefix + "c_K", f, p.c_K...);
    visit_parameter(prefix + "W_V", f, p.W_V...);
    visit_parameter(prefix + "c_V", f, p.c_V...);
    visit_parameter(prefix + "W_O", f, p.W_O...);
    visit_parameter(prefix + "c_O", f, p.c_O...);
  }
};

// One matrix and bias of the feed-forward network: W_FFk [D_out x D_in], b_FFk [D_out].
template <typename T>
struct FeedForward {
  Matrix<T> W;
  Vector<T> b;

  FeedForward(Index D_out, Index D_in)
      : W(Matrix<T>::Constant(D_out, D_in, T(0))), b(Vector<T>::Constant(D_out, T(0))) {}

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    visit_parameter(prefix + "W", f, p.W...);
    visit_parameter(prefix + "b", f, p.b...);
  }
};

// One layer l. The gammas and betas [D_E] are empty unless `affine` is set.
template <typename T>
struct Layer {
  std::vector<Head<T>> head;                   // H; head[h - 1] is head h
  std::vector<FeedForward<T>> ff;              // hidden_layers + 1; ff[k - 1] is W_FFk, b_FFk
  Vector<T> gamma_Y, beta_Y, gamma_X, beta_X;  // for the LayerNorm that gives Y and the one that gives X

  explicit Layer(const Hyperparameters& h) : head(static_cast<std::size_t>(h.H), Head<T>(h)) {
    assert(h.hidden_layers >= 1);
    ff.emplace_back(h.D_FF, h.D_E);
    for (Index k = 2; k <= h.hidden_layers; ++k) ff.emplace_back(h.D_FF, h.D_FF);
    ff.emplace_back(h.D_E, h.D_FF);
    if (h.affine) gamma_Y = beta_Y = gamma_X = beta_X = Vector<T>::Constant(h.D_E, T(0));
  }

  template <typename F, typename First, typename... Rest>
  static void visit(const std::string& prefix, const F& f, First& first, Rest&... rest) {
    visit_each(prefix + "head", f, first.head, rest.head...);
    visit_parameter(prefix + "gamma_Y", f, first.gamma_Y, rest.gamma_Y...);
    visit_parameter(prefix + "beta_Y", f, first.beta_Y, rest.beta_Y...);
    visit_each(prefix + "FF", f, first.ff, rest.ff...);
    visit_parameter(prefix + "gamma_X", f, first.gamma_X, rest.gamma_X...);
    visit_parameter(prefix + "beta_X", f, first.beta_X, rest.beta_X...);
  }
};

// All of G's parameters: W_emb [V x D_E], W_pos [T x D_E] (empty if fixed), W_une [D_E x V] (empty if tied).
template <typename T>
struct Theta {
  Hyperparameters hyper;
  Matrix<T> W_emb, W_pos, W_une;
  std::vector<Layer<T>> layer;  // L; layer[l - 1] is layer l

  explicit Theta(const Hyperparameters& h)
      : hyper(h),
        W_emb(Matrix<T>::Constant(h.V, h.D_E, T(0))),
        layer(static_cast<std::size_t>(h.L), Layer<T>(h)) {
    if (!h.fourier_positions) W_pos = Matrix<T>::Constant(h.T, h.D_E, T(0));
    if (!h.tied) W_une = Matrix<T>::Constant(h.D_E, h.V, T(0));
  }

  template <typename F, typename First, typename... Rest>
  static void visit(const std::string& prefix, const F& f, First& first, Rest&... rest) {
    visit_parameter(prefix + "W_emb", f, first.W_emb, rest.W_emb...);
    visit_parameter(prefix + "W_pos", f, first.W_pos, rest.W_pos...);
    visit_each(prefix + "layer", f, first.layer, rest.layer...);
    visit_parameter(prefix + "W_une", f, first.W_une, rest.W_une...);
  }
};

// Row t of the fixed W_pos, [D]: W_pos[2i, t] = cos(t / T^(2i/D)), W_pos[2i-1, t] = sin(t / T^(2i/D)) for i =
// 1, ..., D/2 (printed with the two indices of his T x D_E matrix exchanged). REQUIRES: D even.
template <typename T>
Vector<T> fourier_position(Index t, Index D, Index sequence_length) {
  assert(D % 2 == 0);
  Vector<T> w(D);
  for (Index i = 1; i <= D / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(D);
    const double angle = static_cast<double>(t) / std::pow(static_cast<double>(sequence_length), exponent);
    entry(w, 2 * i - 1, 1) = T(std::sin(angle));
    entry(w, 2 * i, 1) = T(std::cos(angle));
  }
  return w;
}

// z . W + c^T for a row z [1 x m] (or several rows), W [m x n], c [n] or empty.
template <typename T>
Matrix<T> linear(const Matrix<T>& z, const Matrix<T>& W, const Vector<T>& c) {
  Matrix<T> y = z * W;
  if (c.size() != 0) y.rowwise() += c.transpose();
  return y;
}

// Eq. (4), attn(X, z): what a token z [1 x D_E] gathers from the rows of X [T x D_E] -> [1 x D_E].
template <typename T>
Matrix<T> attn(const Matrix<T>& X, const Matrix<T>& z, const Layer<T>& layer, const Hyperparameters& hyper) {
  Matrix<T> sum = Matrix<T>::Constant(1, hyper.D_E, T(0));
  for (const Head<T>& head : layer.head) {
    const Matrix<T> query = linear(z, head.W_Q, head.c_Q);  // [1 x D_QK]
    const Matrix<T> keys = linear(X, head.W_K, head.c_K);   // [T x D_QK]
    const Matrix<T> scores = keys * query.transpose() / T(std::sqrt(static_cast<double>(hyper.D_QK)));
    const Matrix<T> weights = softmax(scores).transpose();   // [1 x T]
    const Matrix<T> values = linear(X, head.W_V, head.c_V);  // [T x D_VO]
    const Matrix<T> W_O_transposed = head.W_O.transpose();
    const Matrix<T> gathered = weights * values;
    sum += linear(gathered, W_O_transposed, head.c_O);
  }
  return sum;
}

// Eq. (5), ffn(z) = W_FF2 ReLU(W_FF1 z + b_FF1) + b_FF2, or with more hidden layers: a column z [D_E x 1] ->
// [D_E x 1].
template <typename T>
Matrix<T> ffn(Matrix<T> z, const Layer<T>& layer, const Hyperparameters& hyper) {
  for (std::size_t k = 0; k < layer.ff.size(); ++k) {
    if (k > 0) z = activate(hyper.nonlinearity, Activation::ReLU, z);
    z = affine(layer.ff[k].W, z, layer.ff[k].b);
  }
  return z;
}

// One step of eq. (6), for one token: LayerNorm(x + change), or the variation x + LayerNorm(change); x,
// change [1 x D_E].
template <typename T>
Matrix<T> residual(const Matrix<T>& x, const Matrix<T>& change, const Vector<T>& gamma, const Vector<T>& beta,
                   const Hyperparameters& hyper) {
  const Matrix<T> row = hyper.normalize_branch ? change : Matrix<T>(x + change);
  const Vector<T> z = row.row(0).transpose();
  const Matrix<T> normalized = layer_norm(z, gamma, beta).transpose();
  return hyper.normalize_branch ? Matrix<T>(x + normalized) : normalized;
}

// X^(L), eq. (6), [length(s) x D_E]. With `context` [T_c x D_E] the attention of every layer is the
// non-self version: it attends to those states, not to its own X^(l-1).
template <typename T>
Matrix<T> hidden_states(const Tokens& s, const Theta<T>& theta, const Matrix<T>* context = nullptr) {
  const Hyperparameters& hyper = theta.hyper;
  assert(hyper.fourier_positions || length(s) <= hyper.T);
  assert(context == nullptr || !hyper.masked);  // no order is given between a context and s
  Matrix<T> X(length(s), hyper.D_E);
  for (Index t = 1; t <= length(s); ++t) {
    const Vector<T> W_pos_t = hyper.fourier_positions ? fourier_position<T>(t, hyper.D_E, hyper.T)
                                                      : Vector<T>(theta.W_pos.row(t - 1).transpose());
    X.row(t - 1) = theta.W_emb.row(at(s, t) - 1) + W_pos_t.transpose();
  }
  for (const Layer<T>& layer : theta.layer) {
    Matrix<T> next(length(s), hyper.D_E);
    for (Index t = 1; t <= length(s); ++t) {
      const Matrix<T> X_t = X.row(t - 1);
      const Matrix<T> seen = context != nullptr ? *context : hyper.masked ? Matrix<T>(X.topRows(t)) : X;
      const Matrix<T> Y_t = residual(X_t, attn(seen, X_t, layer, hyper), layer.gamma_Y, layer.beta_Y, hyper);
      const Matrix<T> change = ffn(Matrix<T>(Y_t.transpose()), layer, hyper).transpose();
      next.row(t - 1) = residual(Y_t, change, layer.gamma_X, layer.beta_X, hyper);
    }
    X = next;
  }
  return X;
}

// G(s) = softmax(X_T^(L) . W_une), eq. (6): the distribution, [V], of the token after s. Riedel's s has
// length T exactly; here any length from 1 to T will do, and any length with fixed positions.
template <typename T>
Vector<T> G(const Tokens& s, const Theta<T>& theta, const Matrix<T>* context = nullptr) {
  assert(length(s) >= 1);
  const Matrix<T> X = hidden_states(s, theta, context);
  const Matrix<T> W_une = theta.hyper.tied ? Matrix<T>(theta.W_emb.transpose()) : theta.W_une;
  const Matrix<T> logits = (X.row(X.rows() - 1) * W_une).transpose();
  return softmax(logits);
}

}  // namespace qkv::formal::riedel
