#pragma once

// Algorithms 8, 9 and 10 with the variations of later papers. The engine must equal each variation alone
// and in combination. With all hyperparameters at their defaults this is Algorithm 10 as printed. The parts
// are in formal/variations/.

#include <cmath>

#include "formal/loss.h"
#include "formal/named.h"
#include "formal/variations/stack.h"

namespace qkv::formal {

// Lines 2 and 3: x -> [d_e x length(x)]. s[t] is the text that x[t] belongs to. If s is empty or the model
// has a single text vector, every token is of text 1.
template <typename T>
Matrix<T> varied_embed(const Tokens& x, const Tokens& s, const Matrix<T>& W_e, const VariedEmbedding<T>& E,
                       const VariedHyperparameters& h) {
  Matrix<T> tokens(h.d_sum(), length(x)), X = tokens;
  for (Index t = 1; t <= length(x); ++t) {
    Vector<T> e = token_embedding(at(x, t), W_e);
    if (h.unit_embeddings) e = Vector<T>(e / e.norm());
    if (h.d_embedding > 0 && !h.projected_last) e = Vector<T>(E.W_in * e);
    e *= T(h.embedding_multiplier);
    column(tokens, t) = e;
    e += position_vector(t, E, h);
    if (h.texts > 0) e += Vector<T>(column(E.W_text, s.empty() || h.texts == 1 ? 1 : at(s, t)));
    column(X, t) = e;
  }
  named("embedding.token", tokens);
  named("embedding.sum", X);
  if (h.embedding_norm) X = varied_normalize(X, E.norm, h);
  return named("embedding", h.projected_last ? affine(E.W_in, X, E.b_in) : X);
}

// The inputs of the layers, for each token a column of W_layers and of the projected embedding: x, its
// embeddings X [d_e x l] -> [L d_layer x l] (Gemma 3n and 4).
template <typename T>
Matrix<T> layer_inputs(const Tokens& x, const Matrix<T>& X, const VariedEmbedding<T>& E,
                       const VariedHyperparameters& h) {
  Matrix<T> inputs = E.W_project * X / T(std::sqrt(static_cast<double>(h.d_e)));
  for (Index t = 1; t <= length(x); ++t)
    for (Index l = 0; l < h.L; ++l) {
      auto e = column(inputs, t).segment(l * h.d_layer, h.d_layer);
      const Vector<T> of_embedding = RMSnorm(Vector<T>(e), E.gamma_project, h.epsilon),
                      of_token = column(E.W_layers, at(x, t)).segment(l * h.d_layer, h.d_layer) *
                                 T(std::sqrt(static_cast<double>(h.d_layer)));
      e = (of_embedding + of_token) / T(std::sqrt(2.0));
    }
  return inputs;
}

// The logits, before the softmax of the last line: X [d_out() x l] -> [N_V x l].
template <typename T>
Matrix<T> varied_unembed(Matrix<T> X, const Matrix<T>& W_e, const VariedUnembedding<T>& U,
                         const VariedHyperparameters& h) {
  if (h.head) {  // Algorithm 9, lines 10 and 11
    X = activate(h.head_activation, Activation::GELU, affine(U.W_f, X, U.b_f));
    X = named("head", varied_normalize(X, U.norm, h));
  } else if (h.d_embedding > 0) {
    X = Matrix<T>(U.W_out * X);
  }
  Matrix<T> W_u = h.tied ? Matrix<T>(W_e.transpose()) : U.W_u;
  for (Index v = 0; h.unit_embeddings && v < W_u.rows(); ++v) W_u.row(v) /= T(W_u.row(v).norm());
  Matrix<T> logits = affine<T>(W_u, T(h.logit_multiplier) * X, U.b_u);
  if (h.logit_cap > 0)
    logits = Matrix<T>(logits.unaryExpr([&](const T& z) { return capped<T>(z, h.logit_cap); }));
  return logits;
}

// Algorithm 9 or 10 with variations, x's texts are s. P [N_V x length(x)]: for each token of x, the
// distribution of the token that it stands for, or of the next one. With `memory`, x continues the text of
// an earlier call.
template <typename T>
Matrix<T> VariedTransformer(const Tokens& x, const VariedTheta<T>& theta, SegmentMemory* memory = nullptr,
                            const Tokens& s = {}) {
  const VariedHyperparameters& h = theta.hyper;
  Matrix<T> X;
  {
    const Scope stack(h.bidirectional ? "encoder" : "decoder");
    X = varied_embed(x, s, theta.W_e, theta.embedding, h);
    const Matrix<T> E = h.d_layer > 0 ? layer_inputs(x, X, theta.embedding, h) : Matrix<T>();
    X = varied_layers(X, Matrix<T>(), s, theta.stack, h, memory, E);
  }
  return named("P", softmax(named("logits", varied_unembed(X, theta.W_e, theta.unembedding, h))));
}

// Algorithm 8 with variations, P [N_V x length(x)]: x is the decoder's text, z the encoder's. s gives the
// texts of x; z is one text. An embedding that both stacks share is the decoder's.
template <typename T>
Matrix<T> VariedEDTransformer(const Tokens& z, const Tokens& x, const VariedEDTheta<T>& theta,
                              const Tokens& s = {}) {
  const auto& [encoder, decoder, own_tokens, own_embedding, reversed] = theta.hyper;
  const Tokens read = reversed ? Tokens(z.rbegin(), z.rend()) : z;
  Matrix<T> Z, X;
  {
    const Scope stack("encoder");
    Z = varied_embed(read, {}, own_tokens ? theta.W_e_encoder : theta.W_e,
                     own_embedding ? theta.embedding_encoder : theta.embedding,
                     own_embedding ? encoder : decoder);
    Z = varied_layers(Z, Matrix<T>(), {}, theta.encoder, encoder);
  }
  {
    const Scope stack("decoder");
    X = varied_embed(x, s, theta.W_e, theta.embedding, decoder);
    X = varied_layers(X, Z, s, theta.decoder, decoder);
  }
  return named("P", softmax(named("logits", varied_unembed(X, theta.W_e, theta.unembedding, decoder))));
}

// Algorithm 13, lines 3-5.
template <typename T>
T VariedLoss(const Tokens& x, const VariedTheta<T>& theta, const Tokens& s = {}) {
  return next_token_loss(VariedTransformer(x, theta, nullptr, s), x);
}

// Algorithm 12, lines 8 and 9: the model reads x~, whose texts are s, and should predict x's tokens at T~.
template <typename T>
T VariedMaskedLoss(const Tokens& x, const Tokens& x_tilde, const std::vector<Index>& T_tilde,
                   const VariedTheta<T>& theta, const Tokens& s = {}) {
  using std::log;
  const Matrix<T> P = VariedTransformer(x_tilde, theta, nullptr, s);
  T loss = 0;
  for (const Index t : T_tilde) loss -= log(entry(P, at(x, t), t));
  return loss;
}

// Algorithm 11, lines 3-5.
template <typename T>
T VariedEDLoss(const Tokens& z, const Tokens& x, const VariedEDTheta<T>& theta, const Tokens& s = {}) {
  return next_token_loss(VariedEDTransformer(z, x, theta, s), x);
}

}  // namespace qkv::formal
