#include "formal/training.h"

#include <gtest/gtest.h>

#include "tests/formal/test_theta.h"

namespace qkv::formal::training_test {
namespace {

using testing::largest_difference;
using testing::random_theta;
using testing::small;
using testing::Uniform;

const std::vector<Tokens> kData = {{8, 2, 5, 5, 9}, {8, 1, 2, 3, 9}};
const std::vector<std::pair<Tokens, Tokens>> kPairs = {{{3, 4}, {8, 2, 5, 9}}, {{1, 2, 6}, {8, 1, 2, 3, 9}}};

// One step is theta - eta nabla loss(theta), the second at the parameters that the first left.
TEST(DTraining, IsGradientDescentOneSequenceAStep) {
  const auto theta = random_theta<DTheta<double>>(small(), 1);
  const double eta = 0.1;
  auto expected = theta;
  for (const Tokens& x : kData) {
    const auto g = gradient([&](const auto& th) { return DLoss(x, th); }, expected);
    for_each_parameter(expected, g, [&](const std::string&, auto& p, const auto& gp) { p -= eta * gp; });
  }
  EXPECT_EQ(largest_difference(DTraining(kData, theta, 1, eta), expected), 0);
  EXPECT_GT(largest_difference(theta, expected), 1e-3);
}

TEST(DTraining, DecreasesTheLoss) {
  const auto theta = random_theta<DTheta<double>>(small(), 2);
  const auto trained = DTraining(kData, theta, 60, 0.05);
  for (const Tokens& x : kData) EXPECT_LT(DLoss(x, trained), 0.5 * DLoss(x, theta));
}

TEST(EDTraining, DecreasesTheLoss) {
  const auto theta = random_theta<EDTheta<double>>(small(), 3);
  const auto trained = EDTraining(kPairs, theta, 60, 0.05);
  for (const auto& [z, x] : kPairs) EXPECT_LT(EDLoss(z, x, trained), 0.5 * EDLoss(z, x, theta));
}

TEST(ETraining, DecreasesTheLossOfMaskedTokens) {
  const auto theta = random_theta<ETheta<double>>(small(), 4);
  const auto trained = ETraining(kData, theta, 100, 0.05, 0.3, Uniform(1));
  double before = 0, after = 0;
  for (const Tokens& x : kData) {
    for (std::size_t t = 0; t < x.size(); ++t) {
      Tokens x_tilde = x;
      x_tilde[t] = mask_token(9);
      before += ELoss(x, x_tilde, theta);
      after += ELoss(x, x_tilde, trained);
    }
  }
  EXPECT_LT(after, 0.7 * before);
}

// Algorithm 12: the model sees x~, but is judged against x. T~ is taken from x~.
TEST(ELoss, IsAgainstTheOriginalTokens) {
  const auto theta = random_theta<ETheta<double>>(small(), 5);
  const Tokens x = {8, 2, 5, 3, 9}, x_tilde = {8, 7, 5, 3, 7};
  const Matrix<double> P = ETransformer(x_tilde, theta);
  EXPECT_EQ(masked_positions(x_tilde, 9), (std::vector<Index>{2, 5}));
  EXPECT_DOUBLE_EQ(ELoss(x, x_tilde, theta), -std::log(P(2 - 1, 2 - 1)) - std::log(P(9 - 1, 5 - 1)));
}

TEST(MaskRandomly, MasksWithTheGivenProbability) {
  Tokens x(20000, 3);
  const Tokens x_tilde = mask_randomly(x, 9, 0.15, Uniform(2));
  const double share = static_cast<double>(masked_positions(x_tilde, 9).size()) / 20000;
  EXPECT_NEAR(share, 0.15, 4 * std::sqrt(0.15 * 0.85 / 20000));  // four standard deviations
  for (const int token : x_tilde) EXPECT_TRUE(token == 3 || token == mask_token(9));
}

TEST(Training, IsDeterministic) {
  const auto theta = random_theta<ETheta<double>>(small(), 6);
  const auto train = [&] { return ETraining(kData, theta, 3, 0.1, 0.5, Uniform(3)); };
  EXPECT_EQ(largest_difference(train(), train()), 0);
}

}  // namespace
}  // namespace qkv::formal::training_test
