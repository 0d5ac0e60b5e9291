#pragma once

// Mixers other than self-attention.

#include <string>

#include "formal/attention_free.h"
#include "formal/fast_weights.h"
#include "formal/normalization.h"
#include "formal/random_features.h"
#include "formal/recurrence.h"
#include "formal/rwkv.h"
#include "formal/state_space.h"
#include "formal/variations/hyperparameters.h"
#include "formal/variations/parameters.h"

namespace qkv::formal {

// The mean of each column and those before it.
template <typename T>
Matrix<T> running_mean(const Matrix<T>& X) {
  Matrix<T> Y = X;
  for (Index t = 2; t <= X.cols(); ++t)
    column(Y, t) =
        (column(Y, t - 1) * T(static_cast<double>(t - 1)) + column(X, t)) / T(static_cast<double>(t));
  return Y;
}

// W_o of each head's linear attention or delta rule, one below the other. Queries, keys and values are affine
// in X. Queries are divided by the root of a head's rows where nothing is
// normalised.
template <typename T>
Matrix<T> by_fast_weights(const Matrix<T>& X, const VariedMixer<T>& theta, const VariedHyperparameters& h) {
  const bool delta = h.mixer == Mixer::delta_rule;
  const Matrix<T> Q = affine(theta.W_q, X, theta.b_q), K = affine(theta.W_k, X, theta.b_k),
                  V = affine(theta.W_v, X, theta.b_v);
  Matrix<T> Y = V;
  const Index d = h.d_e / h.H_fast;
  for (Index head = 0; head < h.H_fast; ++head) {
    const auto of_head = [&](const Matrix<T>& M) { return Matrix<T>(M.middleRows(head * d, d)); };
    const bool divided = delta || !h.normalised;
    const Matrix<T> phi_Q =
                        phi(h.features, of_head(Q)) * T(divided ? 1 / std::sqrt(static_cast<double>(d)) : 1),
                    phi_K = phi(h.features, of_head(K));
    if (delta) {
      Vector<T> beta = Vector<T>::Constant(X.cols(), T(0));
      for (Index t = 1; t <= X.cols(); ++t)
        beta[t - 1] = sigma(T(Vector<T>(theta.W_beta.row(head).transpose()).dot(Vector<T>(column(X, t))) +
                              theta.b_beta[head]));
      Y.middleRows(head * d, d) = delta_rule(phi_Q, phi_K, of_head(V), beta);
    } else {
      Y.middleRows(head * d, d) = linear_attention(phi_Q, phi_K, of_head(V), !h.bidirectional, h.normalised);
    }
  }
  return affine(theta.W_o, Y, theta.b_o);
}

// gamma-weighted RMSnorm of every column.
template <typename T>
Matrix<T> norm_columns(const Matrix<T>& X, const Vector<T>& gamma, double epsilon) {
  Matrix<T> Y = X;
  for (Index t = 1; t <= X.cols(); ++t) column(Y, t) = RMSnorm(Vector<T>(column(X, t)), gamma, epsilon);
  return Y;
}

// steps[c, t] = softplus(X[c, t] + dt[c]), at least low and, where it is not 0, at most high.
template <typename T>
Matrix<T> steps_of(const Matrix<T>& X, const Vector<T>& dt, double low = 0, double high = 0) {
  Matrix<T> Y = X;
  for (Index t = 1; t <= X.cols(); ++t)
    for (Index c = 1; c <= X.rows(); ++c) {
      const T step = softplus(T(entry(X, c, t) + dt[c - 1]));
      entry(Y, c, t) = value(step) < low ? T(low) : high > 0 && value(step) > high ? T(high) : step;
    }
  return Y;
}

// Gated DeltaNet: W_o of the heads' norm(y) .* SiLU(z), with y of gated_delta_rule (Yang et al. 2024).
template <typename T>
Matrix<T> gated_delta_net(const Matrix<T>& X, const VariedMixer<T>& theta, const VariedHyperparameters& h) {
  const StateShape& s = h.state;
  const Index keys = s.key_heads * s.d_k, values = s.heads * s.d_v, mixed = 2 * keys + values;
  const Matrix<T> all = theta.W_in * X, Z = SiLU(Matrix<T>(all.bottomRows(values))),
                  U = SiLU(short_convolution(Matrix<T>(all.middleRows(2 * s.heads, mixed)), theta.W_conv,
                                             theta.b_conv)),
                  steps = steps_of(Matrix<T>(all.middleRows(s.heads, s.heads)), theta.dt);
  Matrix<T> Y = Z;
  for (Index head = 0; head < s.heads; ++head) {
    const Index of = head / (s.heads / s.key_heads);
    const Matrix<T> Q = phi(FeatureMap::unit, Matrix<T>(U.middleRows(of * s.d_k, s.d_k))),
                    K = phi(FeatureMap::unit, Matrix<T>(U.middleRows(keys + of * s.d_k, s.d_k))),
                    V = U.middleRows(2 * keys + head * s.d_v, s.d_v);
    using std::exp;
    const Vector<T> g = steps.row(head).transpose() * T(-exp(theta.A_log(head, 0)));
    Vector<T> beta = g;
    for (Index t = 1; t <= X.cols(); ++t) beta[t - 1] = sigma(T(all(head, t - 1)));
    const Matrix<T> y =
        gated_delta_rule(Matrix<T>(Q * T(1 / std::sqrt(static_cast<double>(s.d_k)))), K, V, beta, g);
    Y.middleRows(head * s.d_v, s.d_v) =
        norm_columns(y, theta.gamma, h.epsilon).cwiseProduct(Matrix<T>(Z.middleRows(head * s.d_v, s.d_v)));
  }
  return theta.W_o * Y;
}

// Mamba: W_o (y .* SiLU(z)), with y of selective_scan (Gu & Dao 2023, section 3.4).
template <typename T>
Matrix<T> mamba(const Matrix<T>& X, const VariedMixer<T>& theta, const VariedHyperparameters& h) {
  const StateShape& s = h.state;
  const Index d = s.d_v, n = s.d_k;
  const Matrix<T> all = affine(theta.W_in, X, theta.b_in),
                  U = SiLU(short_convolution(Matrix<T>(all.topRows(d)), theta.W_conv, theta.b_conv)),
                  selected = theta.W_select * U;
  Matrix<T> R = selected.topRows(s.rank), B = selected.middleRows(s.rank, n), C = selected.bottomRows(n);
  if (s.norms) {
    R = norm_columns(R, theta.gamma_step, h.epsilon);
    B = norm_columns(B, theta.gamma_B, h.epsilon);
    C = norm_columns(C, theta.gamma_C, h.epsilon);
  }
  const Matrix<T> A = theta.A_log.unaryExpr([](const T& x) {
    using std::exp;
    return T(-exp(x));
  });
  const Matrix<T> Y = selective_scan(U, steps_of(Matrix<T>(theta.W_step * R), theta.dt), A, B, C, theta.D);
  return affine(theta.W_o, Matrix<T>(Y.cwiseProduct(SiLU(Matrix<T>(all.bottomRows(d))))), theta.b_o);
}

// Mamba-2: W_o norm(y .* SiLU(z)), with the heads' y of state_space_dual (Dao & Gu 2024, section 7).
template <typename T>
Matrix<T> mamba_2(const Matrix<T>& X, const VariedMixer<T>& theta, const VariedHyperparameters& h) {
  const StateShape& s = h.state;
  const Index shared = s.key_heads * s.d_k, inner = s.heads * s.d_v, mixed = inner + 2 * shared;
  const Matrix<T> all = affine(theta.W_in, X, theta.b_in), Z = SiLU(Matrix<T>(all.topRows(inner))),
                  U = SiLU(
                      short_convolution(Matrix<T>(all.middleRows(inner, mixed)), theta.W_conv, theta.b_conv)),
                  steps = steps_of(Matrix<T>(all.bottomRows(s.heads)), theta.dt, s.low, s.high);
  Matrix<T> Y = Z;
  for (Index head = 0; head < s.heads; ++head) {
    using std::exp;
    const Index of = head / (s.heads / s.key_heads);
    Y.middleRows(head * s.d_v, s.d_v) =
        state_space_dual(Matrix<T>(U.middleRows(head * s.d_v, s.d_v)), Vector<T>(steps.row(head).transpose()),
                         T(-exp(theta.A_log(head, 0))), Matrix<T>(U.middleRows(inner + of * s.d_k, s.d_k)),
                         Matrix<T>(U.middleRows(inner + shared + of * s.d_k, s.d_k)), T(theta.D[head]));
  }
  return affine(theta.W_o, norm_columns(Matrix<T>(Y.cwiseProduct(Z)), theta.gamma, h.epsilon), theta.b_o);
}

// W_o (c .* conv(b .* x)), with b, c and x one below the other in W_in X + b_in (Liquid AI, LFM2).
template <typename T>
Matrix<T> gated_convolution(const Matrix<T>& X, const VariedMixer<T>& theta) {
  const Matrix<T> all = affine(theta.W_in, X, theta.b_in);
  const Index d = X.rows();
  const Matrix<T> product = all.topRows(d).cwiseProduct(all.bottomRows(d)),
                  Y = short_convolution(product, theta.W_conv, theta.b_conv);
  return affine(theta.W_o, Matrix<T>(Y.cwiseProduct(all.middleRows(d, d))), theta.b_o);
}

// sigma(x) of every entry.
template <typename T>
Matrix<T> sigmas(const Matrix<T>& X) {
  return X.unaryExpr([](const T& x) { return sigma(x); });
}

// RWKV-4's time mixing: W_o (sigma(r) .* wkv) (Peng et al. 2023, section 3.1).
template <typename T>
Matrix<T> time_mixing_4(const Matrix<T>& X, const VariedMixer<T>& theta) {
  const Matrix<T> before = shifted(X), R = theta.W_q * lerp(before, X, theta.mu_r),
                  K = theta.W_k * lerp(before, X, theta.mu_k), V = theta.W_v * lerp(before, X, theta.mu_v);
  const Vector<T> w = theta.log_rate.unaryExpr([](const T& x) {
    using std::exp;
    return T(-exp(x));
  });
  return theta.W_o * Matrix<T>(sigmas(R).cwiseProduct(wkv(K, V, w, theta.u)));
}

// RWKV-7's time mixing (Peng et al. 2025, section 4). `first` has the first layer's values: it leaves them
// there.
template <typename T>
Matrix<T> time_mixing_7(const Matrix<T>& X, const VariedMixer<T>& theta, const VariedHyperparameters& h,
                        Matrix<T>& first) {
  const Matrix<T> before = shifted(X);
  const auto at = [&](const Vector<T>& mu) { return lerp(X, before, mu); };
  const Matrix<T> R = theta.W_q * at(theta.mu_r), K = theta.W_k * at(theta.mu_k), for_v = at(theta.mu_v);
  Matrix<T> V = theta.W_v * for_v;
  if (theta.W_v1.size() == 0)
    first = V;
  else
    V += sigmas(affine(theta.W_v2, Matrix<T>(theta.W_v1 * for_v), theta.b_v2)).cwiseProduct(first - V);
  const Matrix<T> inner = (theta.W_w1 * at(theta.mu_w)).unaryExpr([](const T& x) {
    using std::tanh;
    return T(tanh(x));
  });
  const Matrix<T> W = affine(theta.W_w2, inner, theta.b_w).unaryExpr([](const T& x) {
    using std::exp;
    return T(exp(T(-0.606531 * sigma(x))));
  });
  const Matrix<T> A = sigmas(affine(theta.W_a2, Matrix<T>(theta.W_a1 * at(theta.mu_a)), theta.b_a)),
                  G = theta.W_g2 * sigmas(Matrix<T>(theta.W_g1 * at(theta.mu_g))),
                  D = theta.key_scale.asDiagonal() * K,
                  K_in = lerp(K, Matrix<T>(K.cwiseProduct(A)), theta.key_rate);
  const Index d = h.d_e / h.state.heads;
  Matrix<T> Y = V;
  for (Index head = 0; head < h.state.heads; ++head) {
    const auto of = [&](const Matrix<T>& M) { return Matrix<T>(M.middleRows(head * d, d)); };
    Matrix<T> taken = of(D);
    for (Index t = 1; t <= X.cols(); ++t) {
      using std::sqrt;
      T squares = 0;
      for (Index i = 1; i <= d; ++i) squares += entry(taken, i, t) * entry(taken, i, t);
      column(taken, t) = Vector<T>(column(taken, t)) / T(sqrt(squares));
    }
    const Vector<T> gamma = theta.gamma_y.segment(head * d, d), beta = theta.beta_y.segment(head * d, d),
                    u = theta.u.segment(head * d, d);
    const Matrix<T> r_all = of(R), k_all = of(K_in), v_all = of(V),
                    y = RWKV_7(r_all, of(W), k_all, v_all, taken, of(A));
    for (Index t = 1; t <= X.cols(); ++t) {
      const Vector<T> r = column(r_all, t), k = column(k_all, t), v = column(v_all, t);
      const Vector<T> e = layer_norm(Vector<T>(column(y, t)), gamma, beta, 64e-5);
      Y.block(head * d, t - 1, d, 1) = e + v * T(r.dot(Vector<T>(k.cwiseProduct(u))));
    }
  }
  return theta.W_o * Matrix<T>(Y.cwiseProduct(G));
}

// W_o of each head's random feature attention, of queries, keys and values that are affine in X. Queries and
// keys are divided by the fourth root of a head's rows, or become unit ones.
template <typename T>
Matrix<T> by_random_features(const Matrix<T>& X, const VariedMixer<T>& theta,
                             const VariedHyperparameters& h) {
  const StateShape& s = h.state;
  const Index d = h.d_e / s.heads;
  const T scale = s.unit ? 1 : 1 / std::sqrt(std::sqrt(static_cast<double>(d)));
  const Matrix<T> Q = affine(theta.W_q, X, theta.b_q) * scale, K = affine(theta.W_k, X, theta.b_k) * scale,
                  V = affine(theta.W_v, X, theta.b_v);
  const Matrix<T> gates = s.gated ? sigmas(affine(theta.W_beta, X, theta.b_beta)) : Matrix<T>();
  Matrix<T> Y = V;
  for (Index head = 0; head < s.heads; ++head) {
    const auto of = [&](const Matrix<T>& M) { return Matrix<T>(M.middleRows(head * d, d)); };
    const Vector<T> g = s.gated ? Vector<T>(gates.row(head).transpose()) : Vector<T>();
    Y.middleRows(head * d, d) =
        s.unit ? unit_random_feature_attention(theta.vectors, Vector<T>(theta.sigma.segment(head * d, d)),
                                               of(Q), of(K), of(V), !h.bidirectional)
        : s.epsilon > 0
            ? raised_feature_attention(theta.vectors, s.epsilon, of(Q), of(K), of(V))
            : random_feature_attention(s.map, theta.vectors, of(Q), of(K), of(V), g, !h.bidirectional);
  }
  return affine(theta.W_o, Y, theta.b_o);
}

// W_o (sigmoid(q[t]) .* y[t]) of queries, keys and values that are affine in X.
template <typename T>
Matrix<T> by_attention_free(const Matrix<T>& X, const VariedMixer<T>& theta, const VariedHyperparameters& h) {
  const StateShape& s = h.state;
  const Matrix<T> K = affine(theta.W_k, X, theta.b_k), V = affine(theta.W_v, X, theta.b_v),
                  W = s.aft_rank > 0 ? Matrix<T>(theta.w * theta.w_s.transpose()) : theta.w,
                  Y = attention_free(s.aft, W, s.window, K, V, !h.bidirectional),
                  G = sigmas(affine(theta.W_q, X, theta.b_q));
  return affine(theta.W_o, Matrix<T>(G.cwiseProduct(Y)), theta.b_o);
}

// X [d_e x l] -> [d_e x l]: a recurrence from a state of zeros, of an encoder both ways; W_o of the means of
// W_v X (Zhang et al. 2018); fast weights; random features; AFT; a convolution and states behind it; or RWKV,
// whose first layer leaves its values for later ones. REQUIRES: the mixer is not attention.
template <typename T>
Matrix<T> varied_mixer(const Matrix<T>& X, const VariedMixer<T>& theta, const VariedHyperparameters& h,
                       Matrix<T>& first) {
  if (h.mixer == Mixer::AFT) return by_attention_free(X, theta, h);
  if (h.mixer == Mixer::random_features) return by_random_features(X, theta, h);
  if (h.mixer == Mixer::RWKV_4) return time_mixing_4(X, theta);
  if (h.mixer == Mixer::RWKV_7) return time_mixing_7(X, theta, h, first);
  if (h.mixer == Mixer::average)
    return affine(theta.W_o, running_mean(named("values", affine(theta.W_v, X, theta.b_v))), theta.b_o);
  if (h.mixer == Mixer::linear_attention || h.mixer == Mixer::delta_rule) return by_fast_weights(X, theta, h);
  if (h.mixer == Mixer::gated_delta) return gated_delta_net(X, theta, h);
  if (h.mixer == Mixer::Mamba) return mamba(X, theta, h);
  if (h.mixer == Mixer::Mamba_2) return mamba_2(X, theta, h);
  if (h.mixer == Mixer::convolution) return gated_convolution(X, theta);
  const RecurrentCell cell = h.mixer == Mixer::LSTM ? RecurrentCell::LSTM : RecurrentCell::GRU;
  return h.bidirectional ? recur_both_ways(cell, X, theta.forward, theta.backward)
                         : recur(cell, X, theta.forward);
}

}  // namespace qkv::formal
