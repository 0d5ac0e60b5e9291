#pragma once

// The survey's formulas that the paper lacks: sinusoids of any time and base with their identities, and the
// pseudocode of a pre-LN encoder-decoder (Wikipedia, "Transformer (deep learning architecture)").

#include <cmath>
#include <complex>
#include <vector>

#include "formal/attention.h"
#include "formal/variations.h"

namespace qkv::formal {

// f(t) of "Positional encoding", [d] at any time t: for k from 0 to d / 2 - 1,
//     (f(t)_2k, f(t)_2k+1) = (sin theta, cos theta), theta = t / r^k, r = N^(2/d).
// REQUIRES: d even. The original paper has N = 10000.
inline Vector<double> sinusoidal_position(double t, Index d, double N = 10000) {
  assert(d % 2 == 0);
  const double r = std::pow(N, 2 / static_cast<double>(d));
  Vector<double> f(d);
  for (Index k = 0; k < d / 2; ++k) {
    const double theta = t / std::pow(r, static_cast<double>(k));
    f[2 * k] = std::sin(theta);
    f[2 * k + 1] = std::cos(theta);
  }
  return f;
}

// The same as complex numbers, f(t) = (e^(i t / r^k))_k, [d / 2].
inline Eigen::VectorXcd complex_position(double t, Index d, double N = 10000) {
  assert(d % 2 == 0);
  const double r = std::pow(N, 2 / static_cast<double>(d));
  Eigen::VectorXcd f(d / 2);
  for (Index k = 0; k < d / 2; ++k)
    f[k] = std::exp(std::complex<double>(0, t / std::pow(r, static_cast<double>(k))));
  return f;
}

// diag(f(dt)) for real vectors, [d x d]: sinusoidal_position(t + dt) = shift(dt) sinusoidal_position(t). Each
// complex number is a 2 x 2 block.
inline Matrix<double> shift(double dt, Index d, double N = 10000) {
  const Vector<double> f = sinusoidal_position(dt, d, N);
  Matrix<double> D = Matrix<double>::Zero(d, d);
  for (Index k = 0; k < d / 2; ++k) {
    const double sine = f[2 * k], cosine = f[2 * k + 1];
    D.block(2 * k, 2 * k, 2, 2) << cosine, sine, -sine, cosine;
  }
  return D;
}

namespace pre_ln {

// layer_norm of each column.
template <typename T>
void normalize(Matrix<T>& z, const NormalizationParameters<T>& norm, double epsilon) {
  for (Index t = 1; t <= z.cols(); ++t)
    column(z, t) = layer_norm(Vector<T>(column(z, t)), norm.gamma, norm.beta, epsilon);
}

template <typename T>
void add(Matrix<T>& z, const Matrix<T>& copy) {
  for (Index t = 1; t <= z.cols(); ++t) column(z, t) = Vector<T>(column(z, t) + column(copy, t));
}

template <typename T>
Matrix<T> feedforward(const Matrix<T>& z, const MLPParameters<T>& mlp, Activation activation) {
  return affine(mlp.W_mlp2, activate(activation, Activation::ReLU, affine(mlp.W_mlp1, z, mlp.b_mlp1)),
                mlp.b_mlp2);
}

}  // namespace pre_ln

// "Pseudocode", a standard pre-LN encoder-decoder, line by line: source tokens t_e, target tokens t_d -> [N_V
// x length(t_d)]. Tokenizers come before it. "for each i" of the second decoder sublayer counts t. It reads
// what this model has of theta: learned positions, two layer norms in an encoder's layer and three in a
// decoder's, a norm at the end of each stack. REQUIRES: each stack has its own embedding.
template <typename T>
Matrix<T> PreLNTransformer(const Tokens& t_e, const Tokens& t_d, const VariedEDTheta<T>& theta) {
  const double epsilon = theta.hyper.decoder.epsilon;
  const Activation f = theta.hyper.decoder.activation;

  // encoder
  Matrix<T> z_e(theta.W_e_encoder.rows(), length(t_e));
  for (Index t = 1; t <= length(t_e); ++t)
    column(z_e, t) =
        token_embedding(at(t_e, t), theta.W_e_encoder) + positional_embedding(t, theta.embedding_encoder.W_p);
  for (const VariedLayer<T>& layer : theta.encoder.layer) {
    // first sublayer
    Matrix<T> z_e_copy = z_e;
    pre_ln::normalize(z_e, layer.norm.inner, epsilon);
    z_e = MHAttention(z_e, z_e, z_e, layer.W.W, bidirectional_mask(z_e.cols(), z_e.cols()));
    pre_ln::add(z_e, z_e_copy);
    // second sublayer
    z_e_copy = z_e;
    pre_ln::normalize(z_e, layer.norm_mlp.inner, epsilon);
    z_e = pre_ln::feedforward(z_e, layer.mlp.mlp, f);
    pre_ln::add(z_e, z_e_copy);
  }
  pre_ln::normalize(z_e, theta.encoder.norm, epsilon);

  // decoder
  Matrix<T> z_d(theta.W_e.rows(), length(t_d));
  for (Index t = 1; t <= length(t_d); ++t)
    column(z_d, t) = token_embedding(at(t_d, t), theta.W_e) + positional_embedding(t, theta.embedding.W_p);
  for (const VariedLayer<T>& layer : theta.decoder.layer) {
    // first sublayer
    Matrix<T> z_d_copy = z_d;
    pre_ln::normalize(z_d, layer.norm.inner, epsilon);
    z_d = MHAttention(z_d, z_d, z_d, layer.W.W, unidirectional_mask(z_d.cols(), z_d.cols()));
    pre_ln::add(z_d, z_d_copy);
    // second sublayer
    z_d_copy = z_d;
    pre_ln::normalize(z_d, layer.norm_ed.inner, epsilon);
    z_d = MHAttention(z_d, z_e, z_e, layer.W_ed.W, bidirectional_mask(z_e.cols(), z_d.cols()));
    pre_ln::add(z_d, z_d_copy);
    // third sublayer
    z_d_copy = z_d;
    pre_ln::normalize(z_d, layer.norm_mlp.inner, epsilon);
    z_d = pre_ln::feedforward(z_d, layer.mlp.mlp, f);
    pre_ln::add(z_d, z_d_copy);
  }
  pre_ln::normalize(z_d, theta.decoder.norm, epsilon);

  return unembedding(z_d, theta.unembedding.W_u);
}

}  // namespace qkv::formal
