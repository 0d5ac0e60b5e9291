#include <gtest/gtest.h>

#include "formal/training.h"
#include "tests/formal/finite_differences.h"
#include "tests/formal/test_theta.h"

namespace qkv::formal::e_gradient_test {
namespace {

using testing::random_theta;
using testing::small;

const Tokens kText = {8, 2, 5, 3, 1, 9};
const Tokens kMasked = {8, 7, 5, 3, 7, 9};  // small() has N_V = 9, so mask_token is 7

void check_gradient(const Hyperparameters& hyper) {
  const auto theta = random_theta<ETheta<double>>(hyper, 6);
  testing::expect_gradient_is_finite_difference([](const auto& th) { return ELoss(kText, kMasked, th); },
                                                theta);
}

TEST(EGradient, EqualsFiniteDifferences) {
  check_gradient(small());
}

TEST(EGradient, EqualsFiniteDifferencesTied) {
  Hyperparameters hyper = small();
  hyper.d_f = 0;  // d_e, which tying needs
  hyper.tied = true;
  check_gradient(hyper);
}

TEST(EGradient, WithNothingMaskedIsZero) {
  const auto theta = random_theta<ETheta<double>>(small(), 7);
  const auto [loss, g] = loss_and_gradient([](const auto& th) { return ELoss(kText, kText, th); }, theta);
  EXPECT_EQ(loss, 0);
  EXPECT_EQ(testing::largest_difference(g, ETheta<double>(small())), 0);
}

}  // namespace
}  // namespace qkv::formal::e_gradient_test
