#include "formal/transformer.h"

#include <gtest/gtest.h>

#include "tests/formal/test_theta.h"

namespace qkv::formal::transformer_test {
namespace {

using testing::random_theta;
using testing::small;

constexpr double kRounding = 1e-13;

const Tokens kContext = {3, 4, 1};
const Tokens kText = {8, 2, 5, 5, 9};

void expect_distributions(const Matrix<double>& P, Index N_V, Index l) {
  ASSERT_EQ(P.rows(), N_V);
  ASSERT_EQ(P.cols(), l);
  EXPECT_GT(P.minCoeff(), 0);
  EXPECT_LT((P.colwise().sum().array() - 1).abs().maxCoeff(), kRounding);
}

TEST(Transformers, GiveADistributionForEveryPosition) {
  const Hyperparameters hyper = small();
  expect_distributions(EDTransformer(kContext, kText, random_theta<EDTheta<double>>(hyper, 1)), 9, 5);
  expect_distributions(ETransformer(kText, random_theta<ETheta<double>>(hyper, 2)), 9, 5);
  expect_distributions(DTransformer(kText, random_theta<DTheta<double>>(hyper, 3)), 9, 5);
}

// Column t of DTransformer's P depends on x[1:t] only, and does depend on x[t].
TEST(DTransformer, IsCausal) {
  const auto theta = random_theta<DTheta<double>>(small(), 4);
  const Matrix<double> P = DTransformer(kText, theta);
  for (Index t = 1; t <= length(kText); ++t) {
    Tokens other = kText;
    other[static_cast<std::size_t>(t - 1)] = 6;  // not in kText
    const Matrix<double> Q = DTransformer(other, theta);
    EXPECT_EQ(Matrix<double>(P.leftCols(t - 1)), Matrix<double>(Q.leftCols(t - 1))) << t;
    for (Index u = t; u <= length(kText); ++u) {
      EXPECT_GT((column(P, u) - column(Q, u)).cwiseAbs().maxCoeff(), 1e-6) << t << " " << u;
    }
    const Matrix<double> prefix = DTransformer(Tokens(kText.begin(), kText.begin() + t), theta);
    EXPECT_LT((P.leftCols(t) - prefix).cwiseAbs().maxCoeff(), kRounding) << t;
  }
}

TEST(EDTransformer, IsCausalInItsPrimarySequenceAndSeesAllOfItsContext) {
  const auto theta = random_theta<EDTheta<double>>(small(), 5);
  const Matrix<double> P = EDTransformer(kContext, kText, theta);
  Tokens x = kText;
  x[2] = 6;
  const Matrix<double> Q = EDTransformer(kContext, x, theta);
  EXPECT_EQ(P.leftCols(2), Q.leftCols(2));
  EXPECT_GT((P.col(2) - Q.col(2)).cwiseAbs().maxCoeff(), 1e-6);
  Tokens z = kContext;
  z[2] = 6;
  const Matrix<double> R = EDTransformer(z, kText, theta);
  EXPECT_GT((P.col(0) - R.col(0)).cwiseAbs().maxCoeff(), 1e-6);
}

TEST(ETransformer, SeesBothSides) {
  const auto theta = random_theta<ETheta<double>>(small(), 6);
  Tokens x = kText;
  x[4] = 6;
  const Matrix<double> P = ETransformer(kText, theta), Q = ETransformer(x, theta);
  EXPECT_GT((P.col(0) - Q.col(0)).cwiseAbs().maxCoeff(), 1e-6);
}

// With branches that add nothing, what remains of each algorithm is where it normalises.
template <typename Layers>
void silence(Layers& layers) {
  for (auto& layer : layers) {
    layer.W.W_o.setZero();
    layer.W.b_o.setZero();
    layer.mlp.W_mlp2.setZero();
    layer.mlp.b_mlp2.setZero();
  }
}

// Algorithm 10 normalises a copy X~: a silent branch leaves X as embedded, until line 10.
TEST(DTransformer, NormalizesACopyForItsBranches) {
  auto theta = random_theta<DTheta<double>>(small(), 7);
  silence(theta.layer);
  const Matrix<double> X = normalize(embed(kText, theta.embedding, theta.hyper), theta.norm, theta.hyper);
  EXPECT_EQ(DTransformer(kText, theta), unembedding(X, theta.embedding.W_u));
}

// Algorithms 8 and 9 normalise the sum itself, twice a layer.
TEST(ETransformer, NormalizesTheSum) {
  auto theta = random_theta<ETheta<double>>(small(), 8);
  silence(theta.layer);
  Matrix<double> X = embed(kText, theta.embedding, theta.hyper);
  for (const auto& layer : theta.layer) {
    X = normalize(normalize(X, layer.norm1, theta.hyper), layer.norm2, theta.hyper);
  }
  X = affine(theta.W_f, X, theta.b_f).unaryExpr([](double x) { return GELU(x); });
  X = normalize(X, theta.norm, theta.hyper);
  EXPECT_EQ(ETransformer(kText, theta), unembedding(X, theta.embedding.W_u));
}

// Without cross-attention, the decoder of Algorithm 8 is three normalisations around a masked encoder layer.
TEST(EDTransformer, NormalizesTheSum) {
  auto theta = random_theta<EDTheta<double>>(small(), 9);
  Matrix<double> X = embed(kText, theta.embedding, theta.hyper);
  for (auto& layer : theta.decoder) {
    layer.W_ed.W_o.setZero();
    layer.W_ed.b_o.setZero();
    X = normalize(Matrix<double>(X + MHAttention(X, layer.W_dec, unidirectional_mask(5, 5))), layer.norm3,
                  theta.hyper);
    X = normalize(X, layer.norm4, theta.hyper);
    X = normalize(Matrix<double>(X + MLP(X, layer.mlp, Activation::ReLU, theta.hyper)), layer.norm5,
                  theta.hyper);
  }
  EXPECT_EQ(EDTransformer(kContext, kText, theta), unembedding(X, theta.embedding.W_u));
  EXPECT_EQ(EDTransformer({1}, kText, theta), EDTransformer(kContext, kText, theta));
}

TEST(Transformers, ActivationsAreThosePrinted) {
  auto d = random_theta<DTheta<double>>(small(), 10);
  const Matrix<double> printed = DTransformer(kText, d);
  d.hyper.activation = Activation::GELU;
  EXPECT_EQ(DTransformer(kText, d), printed);
  d.hyper.activation = Activation::GELU_tanh;
  EXPECT_NE(DTransformer(kText, d), printed);
  auto ed = random_theta<EDTheta<double>>(small(), 11);
  const Matrix<double> ed_printed = EDTransformer(kContext, kText, ed);
  ed.hyper.activation = Activation::ReLU;
  EXPECT_EQ(EDTransformer(kContext, kText, ed), ed_printed);
}

TEST(Theta, VisitsEveryParameterOnceByName) {
  Hyperparameters hyper = small();
  hyper.L = 1;
  hyper.H = 1;
  hyper.tied = true;
  DTheta<double> theta(hyper);
  std::vector<std::string> names;
  for_each_parameter(theta, [&](const std::string& name, auto&) { names.push_back(name); });
  EXPECT_EQ(names, (std::vector<std::string>{"W_e",
                                             "W_p",
                                             "layer[1].W.head[1].W_q",
                                             "layer[1].W.head[1].b_q",
                                             "layer[1].W.head[1].W_k",
                                             "layer[1].W.head[1].b_k",
                                             "layer[1].W.head[1].W_v",
                                             "layer[1].W.head[1].b_v",
                                             "layer[1].W.W_o",
                                             "layer[1].W.b_o",
                                             "layer[1].gamma1",
                                             "layer[1].beta1",
                                             "layer[1].gamma2",
                                             "layer[1].beta2",
                                             "layer[1].W_mlp1",
                                             "layer[1].b_mlp1",
                                             "layer[1].W_mlp2",
                                             "layer[1].b_mlp2",
                                             "gamma",
                                             "beta"}));
  int count = 0;
  EDTheta<double> ed(small());
  for_each_parameter(ed, [&](const std::string&, auto&) { ++count; });
  EXPECT_EQ(count, 3 + 2 * (2 * 6 + 2 + 4 + 4) + 2 * (2 * (2 * 6 + 2) + 6 + 4));
}

TEST(Theta, TiedUnembeddingIsTheTransposedEmbedding) {
  auto theta = random_theta<DTheta<double>>(small(), 12);
  theta.embedding.W_u = theta.embedding.W_e.transpose();
  const Matrix<double> untied = DTransformer(kText, theta);
  theta.hyper.tied = true;
  theta.embedding.W_u.resize(0, 0);
  EXPECT_EQ(DTransformer(kText, theta), untied);
}

}  // namespace
}  // namespace qkv::formal::transformer_test
