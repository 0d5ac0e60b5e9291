#pragma once

// The update rules of the literature, as printed: one step theta_t from theta_{t-1}, the gradient g_t and
// what the rule remembers. Vectors hold all entries of a parameter; t counts from 1. The paper itself
// (Algorithms 11-13) trains with theta <- theta - eta grad and names the others without printing them.

#include <algorithm>
#include <cmath>

#include "formal/notation.h"

namespace qkv::formal {

using Array = Eigen::ArrayXd;

// Robbins & Monro 1951; Algorithm 13, line 6. L2 regularisation, here and below, is a term of the gradient:
// g_t + lambda theta.
inline Array SGD(const Array& theta, const Array& g, double eta) {
  return theta - eta * g;
}

// Polyak 1964 as Sutskever et al. 2013 print it with v' = -v / eta: v_t = mu v_{t-1} + g_t.
inline Array Momentum(const Array& theta, const Array& g, Array& v, double eta, double mu) {
  v = mu * v + g;
  return theta - eta * v;
}

// Nesterov's accelerated gradient, Sutskever et al. 2013 eq. 3-4, in the variable phi = theta + mu v at which
// the gradient is taken: phi_t = phi_{t-1} - eta (g_t + mu v_t).
inline Array Nesterov(const Array& phi, const Array& g, Array& v, double eta, double mu) {
  v = mu * v + g;
  return phi - eta * (g + mu * v);
}

// Duchi, Hazan & Singer 2011, the diagonal form.
inline Array AdaGrad(const Array& theta, const Array& g, Array& G, double eta, double epsilon) {
  G = G + g * g;
  return theta - eta * g / (G.sqrt() + epsilon);
}

// Tieleman & Hinton 2012, lecture 6.5.
inline Array RMSProp(const Array& theta, const Array& g, Array& v, double eta, double rho, double epsilon) {
  v = rho * v + (1 - rho) * g * g;
  return theta - eta * g / (v.sqrt() + epsilon);
}

// Kingma & Ba 2015, Algorithm 1; with lambda > 0 Loshchilov & Hutter 2019, Algorithm 2 (its eta_t alpha is
// eta).
inline Array Adam(const Array& theta, const Array& g, Array& m, Array& v, int t, double eta, double beta_1,
                  double beta_2, double epsilon, double lambda = 0) {
  m = beta_1 * m + (1 - beta_1) * g;
  v = beta_2 * v + (1 - beta_2) * g * g;
  const Array m_hat = m / (1 - std::pow(beta_1, t)), v_hat = v / (1 - std::pow(beta_2, t));
  return theta - eta * (m_hat / (v_hat.sqrt() + epsilon) + lambda * theta);
}

// Chen et al. 2023, "Symbolic discovery of optimization algorithms", Algorithm 2.
inline Array Lion(const Array& theta, const Array& g, Array& m, double eta, double beta_1, double beta_2,
                  double lambda) {
  const Array c = beta_1 * m + (1 - beta_1) * g;
  const Array step = eta * (c.sign() + lambda * theta);
  m = beta_2 * m + (1 - beta_2) * g;
  return theta - step;
}

inline double RMS(const Matrix<double>& x) {
  return std::sqrt(x.squaredNorm() / static_cast<double>(x.size()));
}

// Shazeer & Stern 2018, Algorithms 4 (R, C of sizes n and m for a matrix [n, m]) and 5 (R empty: a vector, m
// = 1 column, V in C); their constants. lambda decays decoupled.
inline Matrix<double> Adafactor(const Matrix<double>& X, const Matrix<double>& G, Vector<double>& R,
                                Vector<double>& C, int t, double rho, double lambda) {
  constexpr double epsilon_1 = 1e-30, epsilon_2 = 1e-3, d = 1;
  const double alpha = std::max(epsilon_2, RMS(X)) * rho, beta_2 = 1 - std::pow(t, -0.8);
  const Matrix<double> squares = (G.array().square() + epsilon_1).matrix();
  Matrix<double> V_hat;
  if (R.size() > 0) {
    R = beta_2 * R + (1 - beta_2) * squares.rowwise().sum();
    C = beta_2 * C + (1 - beta_2) * squares.colwise().sum().transpose();
    V_hat = R * C.transpose() / R.sum();
  } else {
    C = beta_2 * C + (1 - beta_2) * squares.col(0);
    V_hat = C;
  }
  const Matrix<double> U = (G.array() / V_hat.array().sqrt()).matrix();
  return X - alpha * U / std::max(1.0, RMS(U) / d) - rho * lambda * X;
}

}  // namespace qkv::formal
