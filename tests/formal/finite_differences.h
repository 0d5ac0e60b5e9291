#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "formal/gradient.h"
#include "formal/parameters.h"

namespace qkv::formal::testing {

// Expects ADOL-C's gradient of `loss` at theta to equal a fourth-order central difference, coefficient by
// coefficient: (8 (f(+h) - f(-h)) - (f(+2h) - f(-2h))) / 12 h.
//
// Its error is about h^4 |f^(5)| / 30 from the formula and 1.5 eps |f| / h from rounding. With h = 1e-3 and
// |f| < 20 the rounding is 7e-12. The fifth derivatives are not known beforehand; the largest error seen in
// these tests is 5e-10, which means up to 1.5e4. 1e-8 leaves a factor of twenty, and is far below the
// gradients, of order one.
template <template <typename> class Theta, typename Loss>
void expect_gradient_is_finite_difference(const Loss& loss, const Theta<double>& theta) {
  constexpr double h = 1e-3, tolerance = 1e-8;
  const auto [value, nabla] = loss_and_gradient(loss, theta);
  EXPECT_DOUBLE_EQ(value, loss(theta));
  Theta<double> moved = theta;
  double largest = 0;
  for_each_parameter(moved, nabla, [&](const std::string& name, auto& p, const auto& g) {
    for (Index j = 0; j < p.cols(); ++j) {
      for (Index i = 0; i < p.rows(); ++i) {
        const double centre = p(i, j);
        const auto at = [&](double offset) {
          p(i, j) = centre + offset;
          return loss(static_cast<const Theta<double>&>(moved));
        };
        const double difference = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
        p(i, j) = centre;
        EXPECT_NEAR(g(i, j), difference, tolerance) << name << "[" << i + 1 << ", " << j + 1 << "]";
        largest = std::max(largest, std::abs(g(i, j)));
      }
    }
  });
  EXPECT_GT(largest, 0.1);  // there is something to compare
}

}  // namespace qkv::formal::testing
