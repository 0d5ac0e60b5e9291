#pragma once

// Training by stochastic gradient descent, one sequence a step: Algorithms 11, 12 and 13.

#include <string>
#include <utility>
#include <vector>

#include "formal/gradient.h"
#include "formal/loss.h"
#include "formal/notation.h"
#include "formal/theta.h"

namespace qkv::formal {

// theta <- theta - eta nabla loss(theta), line 6 of Algorithms 11 and 13, line 10 of Algorithm 12.
template <template <typename> class Theta, typename Loss>
Theta<double> descend(const Loss& loss, Theta<double> theta, double eta) {
  const Theta<double> nabla = gradient(loss, theta);
  for_each_parameter(theta, nabla, [&](const std::string&, auto& p, const auto& g) { p -= eta * g; });
  return theta;
}

// Algorithm 11, theta^ <- EDTraining(z_1:N_data, x_1:N_data, theta), a sequence-to-sequence model. eta > 0.
inline EDTheta<double> EDTraining(const std::vector<std::pair<Tokens, Tokens>>& data, EDTheta<double> theta,
                                  int N_epochs, double eta) {
  for (int i = 1; i <= N_epochs; ++i) {
    for (const auto& [z, x] : data) {
      const Tokens &z_n = z, &x_n = x;
      theta = descend([&](const auto& th) { return EDLoss(z_n, x_n, th); }, theta, eta);
    }
  }
  return theta;
}

// Algorithm 12, theta^ <- ETraining(x_1:N_data, theta), masked language modelling. eta > 0, p_mask in (0, 1);
// uniform() returns the next uniform number in [0, 1), one for each token of each sequence in each epoch.
template <typename Uniform>
ETheta<double> ETraining(const std::vector<Tokens>& data, ETheta<double> theta, int N_epochs, double eta,
                         double p_mask, Uniform&& uniform) {
  for (int i = 1; i <= N_epochs; ++i) {
    for (const Tokens& x : data) {
      const Tokens x_tilde = mask_randomly(x, theta.hyper.N_V, p_mask, uniform);
      theta = descend([&](const auto& th) { return ELoss(x, x_tilde, th); }, theta, eta);
    }
  }
  return theta;
}

// Algorithm 13, theta^ <- DTraining(x_1:N_data, theta), next-token prediction. eta > 0.
inline DTheta<double> DTraining(const std::vector<Tokens>& data, DTheta<double> theta, int N_epochs,
                                double eta) {
  for (int i = 1; i <= N_epochs; ++i) {
    for (const Tokens& x : data) {
      theta = descend([&](const auto& th) { return DLoss(x, th); }, theta, eta);
    }
  }
  return theta;
}

}  // namespace qkv::formal
