// Algorithms 1, 2, 6 and 7, the activations, special tokens and chunking.

#include <gtest/gtest.h>

#include <cmath>

#include "formal/activation.h"
#include "formal/chunking.h"
#include "formal/embedding.h"
#include "formal/normalization.h"
#include "formal/special_tokens.h"
#include "formal/unembedding.h"

namespace qkv::formal::components_test {
namespace {

TEST(Embedding, TakesColumnsCountedFromOne) {
  Matrix<double> W(2, 3);
  W << 1, 2, 3, 4, 5, 6;
  EXPECT_EQ(token_embedding(1, W), Vector<double>(W.col(0)));
  EXPECT_EQ(positional_embedding(3, W), Vector<double>(W.col(2)));
}

// W_p[2i-1, t] = sin(t / l_max^(2i/d_e)), W_p[2i, t] = cos of the same: d_e = 4, l_max = 100, t = 5, so the
// angles are 5 / 100^(1/2) for i = 1 and 5 / 100 for i = 2.
TEST(Embedding, HardCodedPositions) {
  const Vector<double> e_p = hard_coded_positional_embedding<double>(5, 4, 100);
  EXPECT_DOUBLE_EQ(e_p(0), std::sin(0.5));
  EXPECT_DOUBLE_EQ(e_p(1), std::cos(0.5));
  EXPECT_DOUBLE_EQ(e_p(2), std::sin(0.05));
  EXPECT_DOUBLE_EQ(e_p(3), std::cos(0.05));
}

TEST(LayerNorm, HasMeanBetaAndVarianceGammaSquared) {
  const Vector<double> e{{1, 5, 2, 8}}, gamma = Vector<double>::Constant(4, 3),
                                        beta = Vector<double>::Constant(4, 7);
  const Vector<double> e_hat = layer_norm(e, gamma, beta);
  EXPECT_NEAR(e_hat.mean(), 7, 1e-14);
  EXPECT_NEAR((e_hat.array() - 7).square().mean(), 9, 1e-13);  // over d_e, not d_e - 1
  EXPECT_NEAR(e_hat(1), (5 - 4) / std::sqrt(7.5) * 3 + 7, 1e-14);
}

TEST(LayerNorm, EpsilonIsAddedToTheVariance) {
  const Vector<double> e{{1, 5, 2, 8}}, none;
  EXPECT_NEAR(layer_norm(e, none, none, 0.5)(1), 1 / std::sqrt(8.0), 1e-15);
}

TEST(LayerNorm, OfEqualEntriesNeedsAnEpsilon) {
  const Vector<double> e = Vector<double>::Constant(3, 2), none;
  EXPECT_TRUE(layer_norm(e, none, none).array().isNaN().all());  // 0 / 0, as printed
  EXPECT_EQ(layer_norm(e, none, none, 1e-5), Vector<double>(Vector<double>::Zero(3)));
}

TEST(RMSnorm, IsLayerNormWithoutMeanAndOffset) {
  const Vector<double> e{{1, 5, 2, 8}}, gamma{{1, 2, 3, 4}};
  EXPECT_NEAR(RMSnorm(e, gamma)(3), 8 / std::sqrt(94.0 / 4) * 4, 1e-14);
  const Vector<double> centred{{-3, 1, -2, 4}}, none;
  EXPECT_LT((RMSnorm(centred, gamma) - layer_norm(centred, gamma, none)).cwiseAbs().maxCoeff(), 1e-15);
}

TEST(Unembedding, IsTheSoftmaxOfTheLogits) {
  Matrix<double> W_u(3, 2), e(2, 1);
  W_u << 0, 0, 1, 0, 0, 1;
  e << std::log(2.0), std::log(5.0);
  EXPECT_LT((unembedding(e, W_u) - Vector<double>{{1 / 8., 2 / 8., 5 / 8.}}).cwiseAbs().maxCoeff(), 1e-15);
}

// P[X < 1] = 0.841344746068542949 for a standard normal X (any table).
TEST(Activation, Values) {
  EXPECT_EQ(ReLU(-2.0), 0);
  EXPECT_EQ(ReLU(2.0), 2);
  EXPECT_NEAR(GELU(1.0), 0.841344746068542949, 1e-15);
  EXPECT_NEAR(GELU(-1.0), 0.841344746068542949 - 1, 1e-15);
  EXPECT_NEAR(GELU_tanh(1.0), 0.5 * (1 + std::tanh(0.7978845608028654 * 1.044715)), 1e-15);
  EXPECT_GT(std::abs(GELU_tanh(1.0) - GELU(1.0)), 1e-5);  // they are two functions, at most 5e-4 apart
  for (double x = -6; x < 6; x += 0.01) EXPECT_LT(std::abs(GELU_tanh(x) - GELU(x)), 5e-4);
}

TEST(SpecialTokens, AreTheLastThree) {
  EXPECT_EQ(mask_token(50), 48);
  EXPECT_EQ(bos_token(50), 49);
  EXPECT_EQ(eos_token(50), 50);
  EXPECT_EQ(with_bos_and_eos({3, 4}, 50), (Tokens{49, 3, 4, 50}));
}

TEST(Chunks, AreAtMostLMaxLongAndTogetherTheText) {
  EXPECT_EQ(chunks({1, 2, 3, 4, 5}, 2), (std::vector<Tokens>{{1, 2}, {3, 4}, {5}}));
  EXPECT_EQ(chunks({1, 2, 3, 4}, 2), (std::vector<Tokens>{{1, 2}, {3, 4}}));
  EXPECT_EQ(chunks({1, 2}, 3), (std::vector<Tokens>{{1, 2}}));
  EXPECT_TRUE(chunks({}, 3).empty());
}

}  // namespace
}  // namespace qkv::formal::components_test
