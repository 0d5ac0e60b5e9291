#include "formal/riedel.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "formal/gradient.h"
#include "formal/transformer.h"
#include "tests/formal/finite_differences.h"
#include "tests/formal/test_theta.h"

namespace qkv::formal::riedel_test {
namespace {

using testing::random_theta;
using testing::Uniform;

constexpr double kRounding = 1e-13;

const Tokens kText = {4, 2, 5, 5, 1};

riedel::Hyperparameters small_G() {
  riedel::Hyperparameters hyper;
  hyper.V = 7;
  hyper.L = 2;
  hyper.T = 5;
  hyper.H = 3;
  hyper.D_E = 4;
  hyper.D_QK = 2;
  hyper.D_VO = 3;
  hyper.D_FF = 6;
  return hyper;
}

riedel::Theta<double> random_G(const riedel::Hyperparameters& hyper, unsigned seed) {
  riedel::Theta<double> theta(hyper);
  Uniform uniform(seed);
  fill_parameters(theta, [&](const std::string&) { return uniform() - 0.5; });
  return theta;
}

Vector<double> bias_or_zero(const Vector<double>& c, Index d) {
  return c.size() != 0 ? c : Vector<double>(Vector<double>::Zero(d));
}

// W of Algorithm 5 that is the same layer as Riedel's per-head matrices.
MHAttentionParameters<double> as_W(const riedel::Layer<double>& layer, const riedel::Hyperparameters& h) {
  MHAttentionParameters<double> W(h.H, h.D_QK, h.D_VO, h.D_E, h.D_E, h.D_E);
  for (std::size_t i = 0; i < layer.head.size(); ++i) {
    const auto& head = layer.head[i];
    W.head[i].W_q = head.W_Q.transpose();
    W.head[i].W_k = head.W_K.transpose();
    W.head[i].W_v = head.W_V.transpose();
    W.W_o.middleCols(static_cast<Index>(i) * h.D_VO, h.D_VO) = head.W_O;
    W.head[i].b_q = bias_or_zero(head.c_Q, h.D_QK);
    W.head[i].b_k = bias_or_zero(head.c_K, h.D_QK);
    W.head[i].b_v = bias_or_zero(head.c_V, h.D_VO);
    W.b_o += bias_or_zero(head.c_O, h.D_E);
  }
  return W;
}

// G, evaluated directly with Phuong & Hutter's pieces: columns, matrices of heads, a mask.
Vector<double> G_by_pieces(const Tokens& s, const riedel::Theta<double>& theta,
                           const Matrix<double>* context = nullptr) {
  const riedel::Hyperparameters& h = theta.hyper;
  Hyperparameters hyper;
  Matrix<double> X(h.D_E, length(s));
  for (Index t = 1; t <= length(s); ++t) {
    column(X, t) = theta.W_emb.transpose().col(at(s, t) - 1) +
                   (h.fourier_positions ? hard_coded_positional_embedding<double>(t, h.D_E, h.T)
                                        : Vector<double>(theta.W_pos.transpose().col(t - 1)));
  }
  const auto add_and_normalize = [&](const Matrix<double>& x, const Matrix<double>& change,
                                     const Vector<double>& gamma, const Vector<double>& beta) {
    NormalizationParameters<double> norm;
    norm.gamma = gamma;
    norm.beta = beta;
    if (h.normalize_branch) return Matrix<double>(x + normalize(change, norm, hyper));
    return normalize(Matrix<double>(x + change), norm, hyper);
  };
  for (const auto& layer : theta.layer) {
    const Matrix<double> Z = context != nullptr ? Matrix<double>(context->transpose()) : X;
    const MaskMatrix Mask =
        h.masked ? unidirectional_mask(Z.cols(), X.cols()) : bidirectional_mask(Z.cols(), X.cols());
    X = add_and_normalize(X, MHAttention(X, Z, as_W(layer, h), Mask), layer.gamma_Y, layer.beta_Y);
    Matrix<double> Y = X;
    for (std::size_t k = 0; k + 1 < layer.ff.size(); ++k) {
      Y = affine(layer.ff[k].W, Y, layer.ff[k].b).cwiseMax(0);
    }
    X = add_and_normalize(X, affine(layer.ff.back().W, Y, layer.ff.back().b), layer.gamma_X, layer.beta_X);
  }
  const Matrix<double> W_u = h.tied ? theta.W_emb : Matrix<double>(theta.W_une.transpose());
  return unembedding(X, W_u).rightCols(1);
}

void expect_equal(const riedel::Hyperparameters& hyper, unsigned seed) {
  const auto theta = random_G(hyper, seed);
  const Vector<double> p = riedel::G(kText, theta);
  EXPECT_NEAR(p.sum(), 1, kRounding);
  EXPECT_LT((p - G_by_pieces(kText, theta)).cwiseAbs().maxCoeff(), kRounding);
}

TEST(RiedelG, EqualsADirectEvaluation) {
  expect_equal(small_G(), 1);
}

TEST(RiedelG, EqualsADirectEvaluationInEveryVariation) {
  for (int variation = 0; variation < 128; ++variation) {
    SCOPED_TRACE(variation);
    riedel::Hyperparameters hyper = small_G();
    hyper.normalize_branch = variation & 1;
    hyper.affine = variation & 2;
    hyper.masked = variation & 4;
    hyper.biases = variation & 8;
    hyper.tied = variation & 16;
    hyper.fourier_positions = variation & 32;
    hyper.hidden_layers = variation & 64 ? 3 : 1;
    expect_equal(hyper, static_cast<unsigned>(variation));
  }
}

TEST(RiedelG, EveryVariationChangesTheDistribution) {
  const auto differs = [](auto change) {
    riedel::Hyperparameters hyper = small_G();
    const auto theta = random_G(hyper, 2);
    auto other = theta;
    change(other.hyper);
    return (riedel::G(kText, theta) - riedel::G(kText, other)).cwiseAbs().maxCoeff() > 1e-4;
  };
  EXPECT_TRUE(differs([](auto& h) { h.normalize_branch = true; }));
  EXPECT_TRUE(differs([](auto& h) { h.masked = true; }));
  EXPECT_TRUE(differs([](auto& h) { h.tied = true; }));
  EXPECT_TRUE(differs([](auto& h) { h.fourier_positions = true; }));
  EXPECT_TRUE(differs([](auto& h) { h.nonlinearity = Activation::GELU; }));
}

TEST(RiedelG, NonSelfAttentionLooksAtTheContext) {
  const auto theta = random_G(small_G(), 3);
  Uniform uniform(4);
  const Matrix<double> context = Matrix<double>::NullaryExpr(6, 4, [&] { return uniform(); });
  const Vector<double> p = riedel::G(kText, theta, &context);
  EXPECT_LT((p - G_by_pieces(kText, theta, &context)).cwiseAbs().maxCoeff(), kRounding);
  EXPECT_GT((p - riedel::G(kText, theta)).cwiseAbs().maxCoeff(), 1e-4);
}

// With biases, gamma and beta it is the encoder of Algorithm 8, followed by Algorithm 7.
TEST(RiedelG, IsTheEncoderOfAlgorithm8) {
  riedel::Hyperparameters h = small_G();
  h.affine = h.biases = true;
  const auto theta = random_G(h, 5);
  Hyperparameters hyper;
  hyper.N_V = h.V;
  hyper.l_max = h.T;
  hyper.L_enc = h.L;
  hyper.H = h.H;
  hyper.d_e = h.D_E;
  hyper.d_mlp = h.D_FF;
  hyper.d_attn = h.D_QK;
  hyper.d_mid = h.D_VO;
  EDTheta<double> ed(hyper);
  ed.embedding.W_e = theta.W_emb.transpose();
  ed.embedding.W_p = theta.W_pos.transpose();
  for (std::size_t l = 0; l < ed.encoder.size(); ++l) {
    const auto& layer = theta.layer[l];
    ed.encoder[l].W = as_W(layer, h);
    ed.encoder[l].norm1.gamma = layer.gamma_Y;
    ed.encoder[l].norm1.beta = layer.beta_Y;
    ed.encoder[l].norm2.gamma = layer.gamma_X;
    ed.encoder[l].norm2.beta = layer.beta_X;
    ed.encoder[l].mlp.W_mlp1 = layer.ff[0].W;
    ed.encoder[l].mlp.b_mlp1 = layer.ff[0].b;
    ed.encoder[l].mlp.W_mlp2 = layer.ff[1].W;
    ed.encoder[l].mlp.b_mlp2 = layer.ff[1].b;
  }
  const Matrix<double> Z = EDTransformer_encode(kText, ed);
  EXPECT_LT((Z - riedel::hidden_states(kText, theta).transpose()).cwiseAbs().maxCoeff(), kRounding);
}

TEST(RiedelG, FourierPositionsAreTheHardCodedOnes) {
  EXPECT_EQ(riedel::fourier_position<double>(3, 6, 11), hard_coded_positional_embedding<double>(3, 6, 11));
}

TEST(RiedelG, GradientEqualsFiniteDifferences) {
  riedel::Hyperparameters hyper = small_G();
  hyper.affine = hyper.biases = hyper.masked = true;
  hyper.hidden_layers = 2;
  hyper.nonlinearity = Activation::GELU;
  const auto theta = random_G(hyper, 6);
  const auto loss = [](const auto& th) {
    using std::log;
    using T = typename std::decay_t<decltype(th.W_emb)>::Scalar;
    return T(-log(riedel::G(kText, th)(3)));
  };
  testing::expect_gradient_is_finite_difference(loss, theta);
}

}  // namespace
}  // namespace qkv::formal::riedel_test
