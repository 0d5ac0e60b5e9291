#include <gtest/gtest.h>

#include "formal/training.h"
#include "tests/formal/finite_differences.h"
#include "tests/formal/test_theta.h"

namespace qkv::formal::ed_gradient_test {
namespace {

using testing::random_theta;
using testing::small;

const Tokens kContext = {3, 4, 1};
const Tokens kText = {8, 2, 5, 5, 9};

void check_gradient(const Hyperparameters& hyper) {
  const auto theta = random_theta<EDTheta<double>>(hyper, 5);
  testing::expect_gradient_is_finite_difference([](const auto& th) { return EDLoss(kContext, kText, th); },
                                                theta);
}

// GELU, since a finite difference across ReLU's kink is not its derivative.
TEST(EDGradient, EqualsFiniteDifferences) {
  Hyperparameters hyper = small();
  hyper.activation = Activation::GELU;
  check_gradient(hyper);
}

// As printed, with ReLU: at these parameters no hidden unit is within a step of its kink, or the test would
// show it.
TEST(EDGradient, EqualsFiniteDifferencesWithReLUAsPrinted) {
  check_gradient(small());
}

TEST(EDGradient, EqualsFiniteDifferencesTied) {
  Hyperparameters hyper = small();
  hyper.activation = Activation::GELU_tanh;
  hyper.tied = true;
  hyper.positions = Positions::hard_coded;
  check_gradient(hyper);
}

}  // namespace
}  // namespace qkv::formal::ed_gradient_test
