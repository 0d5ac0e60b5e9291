#include <gtest/gtest.h>

#include "formal/training.h"
#include "tests/formal/finite_differences.h"
#include "tests/formal/test_theta.h"

namespace qkv::formal::d_gradient_test {
namespace {

using testing::random_theta;
using testing::small;

const Tokens kText = {8, 2, 5, 2, 1, 9};

void check_gradient(const Hyperparameters& hyper) {
  const auto theta = random_theta<DTheta<double>>(hyper, 1);
  testing::expect_gradient_is_finite_difference([](const auto& th) { return DLoss(kText, th); }, theta);
}

TEST(DGradient, EqualsFiniteDifferences) {
  check_gradient(small());
}

TEST(DGradient, EqualsFiniteDifferencesWithoutEpsilonAsPrinted) {
  Hyperparameters hyper = small();
  hyper.epsilon = 0;
  check_gradient(hyper);
}

TEST(DGradient, EqualsFiniteDifferencesOfGpt2sChoices) {
  Hyperparameters hyper = small();
  hyper.activation = Activation::GELU_tanh;
  hyper.tied = true;
  check_gradient(hyper);
}

TEST(DGradient, EqualsFiniteDifferencesOfGophersChoices) {
  Hyperparameters hyper = small();
  hyper.normalization = Normalization::RMSnorm;
  hyper.positions = Positions::hard_coded;
  check_gradient(hyper);
}

// Tied, W_u is W_e^T: the gradient by W_e is the sum of the gradients that both uses have untied.
TEST(DGradient, OfATiedEmbeddingIsTheSumOfBothUses) {
  Hyperparameters hyper = small();
  auto untied = random_theta<DTheta<double>>(hyper, 2);
  untied.embedding.W_u = untied.embedding.W_e.transpose();
  hyper.tied = true;
  DTheta<double> tied = untied;
  tied.hyper = DTheta<double>(hyper).hyper;
  tied.embedding.W_u.resize(0, 0);
  const auto loss = [](const auto& th) { return DLoss(kText, th); };
  const auto g = gradient(loss, untied);
  const auto g_tied = gradient(loss, tied);
  const Matrix<double> sum = g.embedding.W_e + g.embedding.W_u.transpose();
  EXPECT_LT((g_tied.embedding.W_e - sum).cwiseAbs().maxCoeff(), 1e-13 * sum.cwiseAbs().maxCoeff());
  EXPECT_GT(g.embedding.W_u.cwiseAbs().maxCoeff(), 1e-3);
}

// A key bias adds the same q^T b_k to all scores of a query, which softmax does not see.
TEST(DGradient, ByKeyBiasesIsZero) {
  const auto theta = random_theta<DTheta<double>>(small(), 3);
  const auto g = gradient([](const auto& th) { return DLoss(kText, th); }, theta);
  for (const auto& layer : g.layer) {
    for (const auto& head : layer.W.head) {
      EXPECT_LT(head.b_k.cwiseAbs().maxCoeff(), 1e-14);
      EXPECT_GT(head.b_q.cwiseAbs().maxCoeff(), 1e-6);
    }
  }
}

// One token predicts nothing (Algorithm 13, line 5 sums up to l - 1).
TEST(DGradient, OfOneTokenIsZero) {
  const auto theta = random_theta<DTheta<double>>(small(), 4);
  const auto [loss, g] = loss_and_gradient([](const auto& th) { return DLoss({3}, th); }, theta);
  EXPECT_EQ(loss, 0);
  EXPECT_EQ(testing::largest_difference(g, DTheta<double>(small())), 0);
}

}  // namespace
}  // namespace qkv::formal::d_gradient_test
