#include "formal/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/formal/test_theta.h"

namespace qkv::formal::attention_test {
namespace {

using testing::Uniform;

constexpr double kRounding = 1e-14;  // a few dozen operations on numbers of order one

Matrix<double> random_matrix(Index rows, Index columns, Uniform& uniform) {
  return Matrix<double>::NullaryExpr(rows, columns, [&] { return uniform() - 0.5; });
}

MHAttentionParameters<double> random_heads(Index H, Index d_attn, Index d_mid, Index d_x, Index d_z,
                                           Index d_out, Uniform& uniform) {
  MHAttentionParameters<double> W(H, d_attn, d_mid, d_x, d_z, d_out);
  for_each_parameter(W, [&](const std::string&, auto& p) { p = random_matrix(p.rows(), p.cols(), uniform); });
  return W;
}

TEST(Mask, UnidirectionalIsUpperTriangular) {
  MaskMatrix expected(3, 3);
  expected << 1, 1, 1,  //
      0, 1, 1,          //
      0, 0, 1;
  EXPECT_EQ(unidirectional_mask(3, 3), expected);
  EXPECT_EQ(bidirectional_mask(2, 3), MaskMatrix::Constant(2, 3, true));
}

TEST(Softmax, ColumnsAreTheFormulaAndLargeScoresDoNotOverflow) {
  Matrix<double> A(2, 2);
  A << std::log(1.0), 1000.0,  //
      std::log(3.0), 1000.0 + std::log(3.0);
  const Matrix<double> P = softmax(A);
  EXPECT_NEAR(P(0, 0), 0.25, kRounding);
  EXPECT_NEAR(P(1, 0), 0.75, kRounding);
  EXPECT_NEAR(P(0, 1), 0.25, 1e-12);  // 1000 + log 3 is itself rounded to 1e-13
  EXPECT_NEAR(P(1, 1), 0.75, 1e-12);
}

TEST(Attention, OfOneQueryIsSingleQueryAttention) {
  Uniform uniform(1);
  const auto W = random_heads(1, 3, 4, 5, 5, 4, uniform).head[0];
  const Matrix<double> Z = random_matrix(5, 7, uniform);
  const Vector<double> e = random_matrix(5, 1, uniform);
  const Matrix<double> X = e;
  const Matrix<double> V = Attention(X, Z, W, bidirectional_mask(7, 1));
  EXPECT_LT((V - single_query_attention(e, Z, W)).cwiseAbs().maxCoeff(), kRounding);
}

// Algorithm 3, worked by hand: d_attn = 4, q^T k / sqrt(4) = 0 and log 3, so the weights are 1/4 and 3/4.
TEST(Attention, WorkedByHand) {
  AttentionParameters<double> W(4, 1, 1, 1);
  W.W_q(0, 0) = 1;
  W.W_k(0, 0) = 2 * std::log(3.0);
  W.W_v(0, 0) = 8;
  W.b_v(0) = 1;
  Matrix<double> X(1, 1), Z(1, 2);
  X << 1;
  Z << 0, 1;
  EXPECT_NEAR(Attention(X, Z, W, bidirectional_mask(2, 1))(0, 0), 0.25 * 1 + 0.75 * 9, kRounding * 10);
}

TEST(MHAttention, OfOneHeadAndIdentityOutputIsAttention) {
  Uniform uniform(2);
  auto W = random_heads(1, 3, 4, 5, 6, 4, uniform);
  W.W_o = Matrix<double>::Identity(4, 4);
  W.b_o.setZero();
  const Matrix<double> X = random_matrix(5, 3, uniform), Z = random_matrix(6, 4, uniform);
  const MaskMatrix Mask = unidirectional_mask(4, 3);
  EXPECT_EQ(MHAttention(X, Z, W, Mask), Attention(X, Z, W.head[0], Mask));
}

TEST(MHAttention, IsTheSumOfItsHeads) {
  Uniform uniform(3);
  const auto W = random_heads(3, 2, 4, 5, 6, 7, uniform);
  const Matrix<double> X = random_matrix(5, 3, uniform), Z = random_matrix(6, 4, uniform);
  const MaskMatrix Mask = bidirectional_mask(4, 3);
  Matrix<double> sum = W.b_o.replicate(1, 3);
  for (std::size_t h = 0; h < 3; ++h) {
    sum += W.W_o.middleCols(4 * static_cast<Index>(h), 4) * Attention(X, Z, W.head[h], Mask);
  }
  EXPECT_LT((MHAttention(X, Z, W, Mask) - sum).cwiseAbs().maxCoeff(), kRounding);
}

TEST(MHAttention, OfOneSequenceIsSelfAttention) {
  Uniform uniform(4);
  const auto W = random_heads(2, 3, 4, 5, 5, 5, uniform);
  const Matrix<double> X = random_matrix(5, 3, uniform);
  EXPECT_EQ(MHAttention(X, W, unidirectional_mask(3, 3)), MHAttention(X, X, W, unidirectional_mask(3, 3)));
}

TEST(Attention, MaskedKeysAreAsIfAbsent) {
  Uniform uniform(5);
  const auto W = random_heads(1, 3, 4, 5, 6, 4, uniform).head[0];
  const Matrix<double> X = random_matrix(5, 3, uniform), Z = random_matrix(6, 4, uniform);
  MaskMatrix Mask = bidirectional_mask(4, 3);
  Mask.bottomRows(2).setConstant(false);
  const Matrix<double> V = Attention<double>(X, Z.leftCols(2), W, bidirectional_mask(2, 3));
  EXPECT_LT((Attention(X, Z, W, Mask) - V).cwiseAbs().maxCoeff(), kRounding);
}

TEST(Attention, OfAQueryThatMayAttendNowhereIsNotANumber) {
  Uniform uniform(6);
  const auto W = random_heads(1, 3, 4, 5, 6, 4, uniform).head[0];
  const Matrix<double> X = random_matrix(5, 2, uniform), Z = random_matrix(6, 4, uniform);
  MaskMatrix Mask = bidirectional_mask(4, 2);
  Mask.col(1).setConstant(false);
  const Matrix<double> V = Attention(X, Z, W, Mask);
  EXPECT_TRUE(V.col(0).allFinite());
  EXPECT_TRUE(V.col(1).array().isNaN().all());
}

}  // namespace
}  // namespace qkv::formal::attention_test
