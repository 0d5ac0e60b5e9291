#include "formal/inference.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/formal/test_theta.h"

namespace qkv::formal::inference_test {
namespace {

using testing::random_theta;
using testing::small;
using testing::Uniform;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Temper, InterpolatesBetweenMostLikelyAndUniform) {
  const Vector<double> p{{0.1, 0.4, 0.4, 0.1}};
  EXPECT_EQ(temper(p, 0), (Vector<double>{{0, 1, 0, 0}}));  // the lowest id of the two
  EXPECT_LT((temper(p, 1) - p).cwiseAbs().maxCoeff(), 1e-15);
  EXPECT_EQ(temper(p, kInfinity), (Vector<double>{{0.25, 0.25, 0.25, 0.25}}));
  EXPECT_LT((temper(p, 0.5) - Vector<double>{{1 / 34., 16 / 34., 16 / 34., 1 / 34.}}).cwiseAbs().maxCoeff(),
            1e-15);
  EXPECT_NEAR(temper(p, 1e-4)(1), 0.5, 1e-15);  // 0.4^10000 is below every double
}

TEST(Sample, InvertsTheCumulativeDistribution) {
  const Vector<double> q{{0.25, 0, 0.5, 0.25}};
  const auto draw = [&](double u) { return sample(q, [&] { return u; }); };
  EXPECT_EQ(draw(0), 1);
  EXPECT_EQ(draw(0.2499), 1);
  EXPECT_EQ(draw(0.25), 3);
  EXPECT_EQ(draw(0.7499), 3);
  EXPECT_EQ(draw(0.75), 4);
  EXPECT_EQ(draw(0.9999999999999999), 4);
}

TEST(Sample, HasTheFrequenciesOfQ) {
  const Vector<double> q{{0.2, 0.3, 0.5}};
  Uniform uniform(1);
  Vector<double> count = Vector<double>::Zero(3);
  for (int n = 0; n < 10000; ++n) count(sample(q, uniform) - 1) += 1;
  for (Index v = 0; v < 3; ++v) EXPECT_NEAR(count(v) / 10000, q(v), 4 * std::sqrt(q(v) * (1 - q(v)) / 10000));
}

int most_likely(const Matrix<double>& P, Index t) {
  Index v = 0;
  P.col(t - 1).maxCoeff(&v);
  return static_cast<int>(v) + 1;
}

TEST(DInference, ContinuesThePromptWithTheMostLikelyTokenAtTemperatureZero) {
  const auto theta = random_theta<DTheta<double>>(small(), 2);
  const Tokens y = DInference({8, 2}, theta, 4, 0, Uniform(1));
  ASSERT_EQ(length(y), 4);
  Tokens x = {8, 2};
  for (const int token : y) {
    EXPECT_EQ(token, most_likely(DTransformer(x, theta), length(x)));
    x.push_back(token);
  }
}

// l_max = 6: from the seventh token on the model sees the last six only.
TEST(DInference, KeepsTheLastTokensBeyondLMax) {
  const auto theta = random_theta<DTheta<double>>(small(), 3);
  const Tokens prompt = {8, 2, 4, 1};
  const Tokens y = DInference(prompt, theta, 9, 0.7, Uniform(2));
  ASSERT_EQ(length(y), 9);
  Tokens x = prompt;
  Uniform uniform(2);
  for (const int token : y) {
    const Tokens window(x.size() > 6 ? x.end() - 6 : x.begin(), x.end());
    const Matrix<double> P = DTransformer(window, theta);
    EXPECT_EQ(token, sample(temper(P.rightCols(1), 0.7), uniform));
    x.push_back(token);
  }
}

TEST(DInference, IsDeterministicInItsRandomNumbers) {
  const auto theta = random_theta<DTheta<double>>(small(), 4);
  const auto y = [&](unsigned seed) { return DInference({8}, theta, 12, 1, Uniform(seed)); };
  EXPECT_EQ(y(1), y(1));
  EXPECT_NE(y(1), y(2));
}

// An unembedding of zeros but for one row makes that row's token certain, whatever the state: here by its
// sign, since the last layer-norm leaves gamma = 0, beta = 1.
EDTheta<double> always(int token) {
  auto theta = random_theta<EDTheta<double>>(small(), 5);
  theta.decoder.back().norm5.gamma.setZero();
  theta.decoder.back().norm5.beta.setOnes();
  theta.embedding.W_u.setZero();
  theta.embedding.W_u.row(token - 1).setConstant(10);
  return theta;
}

TEST(EDInference, StopsAtEos) {
  EXPECT_EQ(EDInference({3, 4}, always(eos_token(9)), 0, Uniform(1)), (Tokens{8, 9}));
}

TEST(EDInference, StopsAtTheStatedBoundWithoutEos) {
  EXPECT_EQ(EDInference({3, 4}, always(2), 0, Uniform(1)), (Tokens{8, 2, 2, 2, 2, 2}));  // l_max = 6
  EXPECT_EQ(EDInference({3, 4}, always(2), 0, Uniform(1), 3), (Tokens{8, 2, 2}));
}

TEST(EDInference, SamplesFromTheLastColumn) {
  const auto theta = random_theta<EDTheta<double>>(small(), 6);
  const Tokens z = {3, 4, 1};
  const Tokens x = EDInference(z, theta, 1.5, Uniform(7));
  Uniform uniform(7);
  ASSERT_EQ(x.front(), bos_token(9));
  for (Index t = 1; t < length(x); ++t) {
    const Matrix<double> P = EDTransformer(z, Tokens(x.begin(), x.begin() + t), theta);
    EXPECT_EQ(at(x, t + 1), sample(temper(P.col(t - 1), 1.5), uniform));
    EXPECT_TRUE(at(x, t + 1) != eos_token(9) || t + 1 == length(x));
  }
}

}  // namespace
}  // namespace qkv::formal::inference_test
