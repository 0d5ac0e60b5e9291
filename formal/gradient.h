#pragma once

// nabla loss(theta) by automatic differentiation: ADOL-C in tape mode. ADOL-C is one of the tools in the
// survey that the paper cites for this (section 7, [BPRS18]).

#include <adolc/adolc.h>

#include <string>
#include <vector>

#include "formal/notation.h"
#include "formal/parameters.h"

namespace Eigen {

// Tells Eigen about ADOL-C's tape scalar, which has the precision of double.
template <>
struct NumTraits<adouble> : NumTraits<double> {
  using Real = adouble;
  using NonInteger = adouble;
  using Nested = adouble;
  enum { RequireInitialization = 1, ReadCost = 1, AddCost = 3, MulCost = 3 };
};

}  // namespace Eigen

namespace qkv::formal {

// A loss at theta, and its gradient: a theta that holds the derivative by each parameter.
template <typename Theta>
struct LossAndGradient {
  double loss;
  Theta gradient;
};

// loss(theta) and nabla loss(theta). `loss` takes a Theta<adouble> and returns an adouble, e.g.
//     [&](const auto& theta) { return DLoss(x, theta); }
// A parameter that is used twice (a tied W_e) gets the sum of both uses. ADOL-C's tape is a global: one
// thread only.
template <template <typename> class Theta, typename Loss>
LossAndGradient<Theta<double>> loss_and_gradient(const Loss& loss, const Theta<double>& theta) {
  constexpr short kTape = 1;
  // Entries that ADOL-C holds in memory; taken at the tape's first use. Beyond them it writes the tape to
  // files of one name, which programs that run side by side in one folder would overwrite.
  constexpr unsigned kBuffer = 1u << 24;
  std::vector<double> independent;
  LossAndGradient<Theta<double>> result{0, Theta<double>(theta.hyper)};

  trace_on(kTape, /*keepTaylors=*/0, kBuffer, kBuffer, kBuffer, kBuffer);
  {
    Theta<adouble> active(theta.hyper);
    for_each_parameter(active, theta, [&](const std::string&, auto& a, const auto& p) {
      for (Index k = 0; k < p.size(); ++k) {
        a.coeffRef(k % p.rows(), k / p.rows()) <<= p.coeff(k % p.rows(), k / p.rows());
        independent.push_back(p.coeff(k % p.rows(), k / p.rows()));
      }
    });
    adouble dependent = loss(static_cast<const Theta<adouble>&>(active));
    dependent >>= result.loss;
  }
  trace_off();

  std::vector<double> derivative(independent.size());
  ::gradient(kTape, static_cast<int>(independent.size()), independent.data(), derivative.data());
  std::size_t next = 0;
  for_each_parameter(result.gradient, [&](const std::string&, auto& g) {
    for (Index k = 0; k < g.size(); ++k) g.coeffRef(k % g.rows(), k / g.rows()) = derivative[next++];
  });
  return result;
}

// nabla loss(theta) alone.
template <template <typename> class Theta, typename Loss>
Theta<double> gradient(const Loss& loss, const Theta<double>& theta) {
  return loss_and_gradient(loss, theta).gradient;
}

}  // namespace qkv::formal
