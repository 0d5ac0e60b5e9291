// Linear attention and fast weights (formal/fast_weights.h) are two views of the same.

#include "formal/fast_weights.h"

#include <gtest/gtest.h>

#include "tests/formal/test_theta.h"

namespace qkv::fast_weights_test {
namespace {

using formal::FeatureMap;
using formal::Index;
using formal::Matrix;
using formal::Vector;

struct Case {
  Matrix<double> Q, K, V;
  Case(Index d_k, Index d_v, Index l, unsigned seed) {
    std::srand(seed);
    Q = Matrix<double>::Random(d_k, l);
    K = Matrix<double>::Random(d_k, l);
    V = Matrix<double>::Random(d_v, l);
  }
};

// Schmidhuber 1992, as Schlag et al. 2021 read it.
TEST(FastWeightsFormal, AreLinearAttentionThatIsNotNormalised) {
  for (const Index l : {1, 2, 9}) {
    const Case c(4, 3, l, 7);
    for (const FeatureMap map :
         {FeatureMap::identity, FeatureMap::elu, FeatureMap::ReLU, FeatureMap::shares}) {
      const Matrix<double> Q = formal::phi(map, c.Q), K = formal::phi(map, c.K);
      EXPECT_LT((formal::fast_weights(Q, K, c.V) - formal::linear_attention(Q, K, c.V, true, false)).norm(),
                1e-12);
    }
  }
}

TEST(FastWeightsFormal, NormalisedOutputsAreMeansOfValues) {
  const Case c(4, 3, 9, 8);
  Matrix<double> V = c.V;
  V.row(0).setConstant(2.5);
  for (const bool causal : {false, true}) {
    const Matrix<double> Y = formal::linear_attention(formal::phi(FeatureMap::elu, c.Q),
                                                      formal::phi(FeatureMap::elu, c.K), V, causal, true);
    for (Index t = 0; t < 9; ++t) EXPECT_NEAR(Y(0, t), 2.5, 1e-5);
  }
}

// A key of length 1 that is written with beta = 1 holds its last value, whatever was there.
TEST(FastWeightsFormal, TheDeltaRuleReplaces) {
  const Case c(4, 3, 2, 9);
  Matrix<double> K(4, 2);
  K.col(0) = K.col(1) = c.K.col(0).normalized();
  const Matrix<double> replaced = formal::delta_rule(K, K, c.V, Vector<double>(Vector<double>::Ones(2))),
                       added = formal::fast_weights(K, K, c.V);
  EXPECT_LT((replaced.col(1) - c.V.col(1)).norm(), 1e-12);
  EXPECT_LT((added.col(1) - c.V.col(0) - c.V.col(1)).norm(), 1e-12);
}

TEST(FastWeightsFormal, FeaturesAreWhatTheySay) {
  Vector<double> x(3);
  x << 0.5, -2, 3;
  const Vector<double> elu = formal::phi(FeatureMap::elu, x), shares = formal::phi(FeatureMap::shares, x);
  EXPECT_NEAR(elu[0], 1.5, 1e-12);
  EXPECT_NEAR(elu[1], std::exp(-2.0), 1e-12);
  EXPECT_NEAR(shares.sum(), 1, 1e-12);
  EXPECT_NEAR(shares[2] / shares[0], 4 / 1.5, 1e-12);
  EXPECT_NEAR(formal::phi(FeatureMap::unit, x).norm(), 1, 1e-6);
  EXPECT_EQ(formal::phi(FeatureMap::ReLU, x)[1], 0);
}

}  // namespace
}  // namespace qkv::fast_weights_test
