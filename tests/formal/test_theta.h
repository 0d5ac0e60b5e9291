#pragma once

// Shared by the tests of formal/: random parameters, and the comparison of two thetas.

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "formal/theta.h"

namespace qkv::formal::testing {

// A source of uniform numbers in [0, 1), the same on every machine for a given seed.
class Uniform {
 public:
  explicit Uniform(unsigned seed) : engine_(seed) {}
  double operator()() { return static_cast<double>(engine_() >> 11) * 0x1.0p-53; }

 private:
  std::mt19937_64 engine_;
};

// Parameters uniform in (-0.5, 0.5), gamma in (0.5, 1.5): far from any symmetry of the initialisations in
// use.
template <typename Theta>
Theta random_theta(const Hyperparameters& hyper, unsigned seed) {
  Theta theta(hyper);
  Uniform uniform(seed);
  fill_parameters(theta, [&](const std::string& name) {
    return uniform() - 0.5 + (name.find("gamma") != std::string::npos ? 1.0 : 0.0);
  });
  return theta;
}

// A small configuration with odd sizes; d_attn and d_mid differ from each other and from d_e / H.
inline Hyperparameters small() {
  Hyperparameters hyper;
  hyper.N_V = 9;
  hyper.l_max = 6;
  hyper.L = hyper.L_enc = hyper.L_dec = 2;
  hyper.H = 2;
  hyper.d_e = 6;
  hyper.d_mlp = 7;
  hyper.d_f = 5;
  hyper.d_attn = 3;
  hyper.d_mid = 4;
  hyper.epsilon = 1e-5;
  return hyper;
}

// The largest |p - q| over all parameters.
template <typename Theta>
double largest_difference(const Theta& a, const Theta& b) {
  double largest = 0;
  for_each_parameter(a, b, [&](const std::string&, const auto& p, const auto& q) {
    largest = std::max(largest, (p - q).cwiseAbs().maxCoeff());
  });
  return largest;
}

}  // namespace qkv::formal::testing
