#pragma once

// The three transformers: Algorithms 8, 9 and 10.

#include "formal/activation.h"
#include "formal/attention.h"
#include "formal/embedding.h"
#include "formal/normalization.h"
#include "formal/notation.h"
#include "formal/theta.h"
#include "formal/unembedding.h"

namespace qkv::formal {

// [e_1, ..., e_l] with e_t = W_e[:, x[t]] + W_p[:, t], eq. (1): x of length l -> [d_e x l]. REQUIRES: l <=
// l_max where W_p is learned.
template <typename T>
Matrix<T> embed(const Tokens& x, const EmbeddingParameters<T>& W, const Hyperparameters& hyper) {
  Matrix<T> X(hyper.d_e, length(x));
  for (Index t = 1; t <= length(x); ++t) {
    const Vector<T> e_p = hyper.positions == Positions::learned
                              ? positional_embedding(t, W.W_p)
                              : hard_coded_positional_embedding<T>(t, hyper.d_e, hyper.l_max);
    column(X, t) = token_embedding(at(x, t), W.W_e) + e_p;
  }
  return X;
}

// For t in [l]: layer_norm(X[:, t] | gamma, beta), or RMSnorm: X [d x l] -> [d x l].
template <typename T>
Matrix<T> normalize(const Matrix<T>& X, const NormalizationParameters<T>& norm,
                    const Hyperparameters& hyper) {
  Matrix<T> X_hat(X.rows(), X.cols());
  for (Index t = 1; t <= X.cols(); ++t) {
    const Vector<T> e = column(X, t);
    column(X_hat, t) = hyper.normalization == Normalization::layer_norm
                           ? layer_norm(e, norm.gamma, norm.beta, hyper.epsilon)
                           : RMSnorm(e, norm.gamma, hyper.epsilon);
  }
  return X_hat;
}

// W_mlp2 f(W_mlp1 X + b_mlp1 1^T) + b_mlp2 1^T, f the activation: X [d_e x l] -> [d_e x l].
template <typename T>
Matrix<T> MLP(const Matrix<T>& X, const MLPParameters<T>& mlp, Activation printed,
              const Hyperparameters& hyper) {
  const Matrix<T> hidden = activate(hyper.activation, printed, affine(mlp.W_mlp1, X, mlp.b_mlp1));
  return affine(mlp.W_mlp2, hidden, mlp.b_mlp2);
}

// W_u [N_V x d]: the parameter, or W_e^T where the two are tied (section 5, "Unembedding").
template <typename T>
Matrix<T> unembedding_matrix(const EmbeddingParameters<T>& W, const Hyperparameters& hyper) {
  if (hyper.tied) return W.W_e.transpose();
  return W.W_u;
}

// Algorithm 8, lines 1-9, the encoder: z of length l_z -> Z [d_e x l_z].
template <typename T>
Matrix<T> EDTransformer_encode(const Tokens& z, const EDTheta<T>& theta) {
  const Hyperparameters& hyper = theta.hyper;
  const Index l_z = length(z);                                      // line 1
  Matrix<T> Z = embed(z, theta.embedding, hyper);                   // lines 2, 3
  for (const Layer<T>& layer : theta.encoder) {                     // line 4
    Z = Z + MHAttention(Z, layer.W, bidirectional_mask(l_z, l_z));  // line 5
    Z = normalize(Z, layer.norm1, hyper);                           // line 6
    Z = Z + MLP(Z, layer.mlp, Activation::ReLU, hyper);             // line 7
    Z = normalize(Z, layer.norm2, hyper);                           // line 8
  }
  return Z;
}

// Algorithm 8, lines 10-20, the decoder, conditioned on Z [d_e x l_z]: x of length l_x -> X [d_e x l_x]. The
// paper's loop of line 13 counts i where its body indexes l; the layer is meant.
// Line 16 attends with three sequences, the keys of Z_k and the values of Z_v (the survey's attention head).
template <typename T>
Matrix<T> EDTransformer_decode(const Matrix<T>& Z_k, const Matrix<T>& Z_v, const Tokens& x,
                               const EDTheta<T>& theta) {
  const Hyperparameters& hyper = theta.hyper;
  const Index l_x = length(x), l_z = Z_k.cols();                                 // line 10
  Matrix<T> X = embed(x, theta.embedding, hyper);                                // lines 11, 12
  for (const DecoderLayer<T>& layer : theta.decoder) {                           // line 13
    X = X + MHAttention(X, layer.W_dec, unidirectional_mask(l_x, l_x));          // line 14
    X = normalize(X, layer.norm3, hyper);                                        // line 15
    X = X + MHAttention(X, Z_k, Z_v, layer.W_ed, bidirectional_mask(l_z, l_x));  // line 16
    X = normalize(X, layer.norm4, hyper);                                        // line 17
    X = X + MLP(X, layer.mlp, Activation::ReLU, hyper);                          // line 18
    X = normalize(X, layer.norm5, hyper);                                        // line 19
  }
  return X;
}

// The same as printed: Z_k = Z_v = Z.
template <typename T>
Matrix<T> EDTransformer_decode(const Matrix<T>& Z, const Tokens& x, const EDTheta<T>& theta) {
  return EDTransformer_decode(Z, Z, x, theta);
}

// Algorithm 8, P <- EDTransformer(z, x | theta), [VSP+17]: two sequences of token ids -> P [N_V x length(x)],
// whose column t is P(x[t+1] | x[1:t], z).
template <typename T>
Matrix<T> EDTransformer(const Tokens& z, const Tokens& x, const EDTheta<T>& theta) {
  const Matrix<T> Z = EDTransformer_encode(z, theta);
  const Matrix<T> X = EDTransformer_decode(Z, x, theta);
  return unembedding(X, unembedding_matrix(theta.embedding, theta.hyper));  // line 21
}

// Algorithm 9, lines 5-8, one layer: X [d_e x l_x], which attends to Z [d_e x l_z] -> X [d_e x l_x].
template <typename T>
Matrix<T> ETransformer_layer(Matrix<T> X, const Matrix<T>& Z, const Layer<T>& layer, const MaskMatrix& Mask,
                             const Hyperparameters& hyper) {
  X = X + MHAttention(X, Z, layer.W, Mask);            // line 5
  X = normalize(X, layer.norm1, hyper);                // line 6
  X = X + MLP(X, layer.mlp, Activation::GELU, hyper);  // line 7
  return normalize(X, layer.norm2, hyper);             // line 8
}

// Algorithm 9, lines 1-9: x -> X [d_e x length(x)].
template <typename T>
Matrix<T> ETransformer_encode(const Tokens& x, const ETheta<T>& theta) {
  const Index l = length(x);                             // line 1
  Matrix<T> X = embed(x, theta.embedding, theta.hyper);  // lines 2, 3
  for (const Layer<T>& layer : theta.layer)              // line 4
    X = ETransformer_layer(X, X, layer, bidirectional_mask(l, l), theta.hyper);
  return X;
}

// Algorithm 9, lines 10-12: X [d_e x l] -> P [N_V x l]. From line 10 on X is [d_f x l], so W_u is taken as
// [N_V x d_f] (printed: N_V x d_e).
template <typename T>
Matrix<T> ETransformer_predict(Matrix<T> X, const ETheta<T>& theta) {
  const Hyperparameters& hyper = theta.hyper;
  X = activate(hyper.activation, Activation::GELU, affine(theta.W_f, X, theta.b_f));  // line 10
  X = normalize(X, theta.norm, hyper);                                                // line 11
  return unembedding(X, unembedding_matrix(theta.embedding, hyper));                  // line 12
}

// Algorithm 9, P <- ETransformer(x | theta), BERT: x -> P [N_V x length(x)], every column a distribution over
// the vocabulary.
template <typename T>
Matrix<T> ETransformer(const Tokens& x, const ETheta<T>& theta) {
  return ETransformer_predict(ETransformer_encode(x, theta), theta);
}

// Algorithm 10, lines 5-8, one layer with any Mask [l x l] in line 6: X [d_e x l] -> X [d_e x l]. X_tilde is
// the paper's X~: the lines normalise what enters a branch, and leave the sum X itself alone.
template <typename T>
Matrix<T> DTransformer_layer(Matrix<T> X, const Layer<T>& layer, const MaskMatrix& Mask,
                             const Hyperparameters& hyper) {
  Matrix<T> X_tilde = normalize(X, layer.norm1, hyper);         // line 5
  X = X + MHAttention(X_tilde, layer.W, Mask);                  // line 6
  X_tilde = normalize(X, layer.norm2, hyper);                   // line 7
  return X + MLP(X_tilde, layer.mlp, Activation::GELU, hyper);  // line 8
}

// Algorithm 10, lines 2-10: x of length l -> X [d_e x l].
template <typename T>
Matrix<T> DTransformer_decode(const Tokens& x, const MaskMatrix& Mask, const DTheta<T>& theta) {
  Matrix<T> X = embed(x, theta.embedding, theta.hyper);  // lines 2, 3
  for (const Layer<T>& layer : theta.layer)              // line 4
    X = DTransformer_layer(X, layer, Mask, theta.hyper);
  return normalize(X, theta.norm, theta.hyper);  // line 10
}

// Algorithm 10 with any Mask [l x l].
template <typename T>
Matrix<T> DTransformer(const Tokens& x, const MaskMatrix& Mask, const DTheta<T>& theta) {
  const Matrix<T> X = DTransformer_decode(x, Mask, theta);
  return unembedding(X, unembedding_matrix(theta.embedding, theta.hyper));  // line 11
}

// Algorithm 10, P <- DTransformer(x | theta), GPT: x -> P [N_V x length(x)], whose column t is P(x[t+1] |
// x[1:t]).
template <typename T>
Matrix<T> DTransformer(const Tokens& x, const DTheta<T>& theta) {
  const Index l = length(x);  // line 1
  return DTransformer(x, unidirectional_mask(l, l), theta);
}

}  // namespace qkv::formal
