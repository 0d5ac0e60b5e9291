// The three transformers against a second evaluation that shares little with them: token by token, attention
// by Algorithm 3 over the tokens that a token may see (no masks, no matrices of scores), norms and
// perceptrons by plain sums.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "formal/attention.h"
#include "formal/loss.h"
#include "formal/transformer.h"
#include "tests/formal/test_theta.h"

namespace qkv::formal::token_by_token_test {
namespace {

using testing::random_theta;
using testing::small;

using States = std::vector<Vector<double>>;

constexpr double kRounding = 1e-12;  // some thousand operations on numbers of order one

const Tokens kContext = {3, 4, 1};
const Tokens kText = {8, 2, 5, 5, 9};

States embedded(const Tokens& x, const EmbeddingParameters<double>& W) {
  States states;
  for (std::size_t t = 0; t < x.size(); ++t)
    states.push_back(W.W_e.col(x[t] - 1) + W.W_p.col(static_cast<Index>(t)));
  return states;
}

Matrix<double> first(const States& states, std::size_t count) {
  Matrix<double> E(states[0].size(), static_cast<Index>(count));
  for (std::size_t t = 0; t < count; ++t) E.col(static_cast<Index>(t)) = states[t];
  return E;
}

Vector<double> attend(const Vector<double>& e, const Matrix<double>& E,
                      const MHAttentionParameters<double>& W) {
  Vector<double> out = W.b_o;
  Index row = 0;
  for (const auto& head : W.head) {
    const Vector<double> y = single_query_attention(e, E, head);
    for (Index i = 0; i < y.size(); ++i) out += W.W_o.col(row++) * y(i);
  }
  return out;
}

Vector<double> norm(const Vector<double>& e, const NormalizationParameters<double>& p, double epsilon) {
  double sum = 0, square_sum = 0;
  for (const double x : e) sum += x, square_sum += x * x;
  const double n = static_cast<double>(e.size()), mean = sum / n, variance = square_sum / n - mean * mean;
  Vector<double> out(e.size());
  for (Index i = 0; i < e.size(); ++i) {
    out(i) = (e(i) - mean) / std::sqrt(variance + epsilon) * p.gamma(i) + p.beta(i);
  }
  return out;
}

double gelu(double x) {
  return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
}
double relu(double x) {
  return std::fmax(x, 0.0);
}

Vector<double> dense(const Matrix<double>& W, const Vector<double>& e, const Vector<double>& b) {
  Vector<double> out(W.rows());
  for (Index i = 0; i < W.rows(); ++i) {
    out(i) = b(i);
    for (Index j = 0; j < W.cols(); ++j) out(i) += W(i, j) * e(j);
  }
  return out;
}

Vector<double> perceptron(const Vector<double>& e, const MLPParameters<double>& p, double (*f)(double)) {
  return dense(p.W_mlp2, dense(p.W_mlp1, e, p.b_mlp1).unaryExpr(f), p.b_mlp2);
}

void expect_distributions(const Matrix<double>& P, const States& states, const Matrix<double>& W_u) {
  for (std::size_t t = 0; t < states.size(); ++t) {
    Vector<double> p(W_u.rows());
    for (Index v = 0; v < p.size(); ++v) p(v) = std::exp(W_u.row(v).dot(states[t]));
    p /= p.sum();
    EXPECT_LT((P.col(static_cast<Index>(t)) - p).cwiseAbs().maxCoeff(), kRounding) << t;
  }
}

// A layer of the encoders: everyone sees everyone, the sum is normalised.
void encoder_layer(States& X, const Layer<double>& layer, double epsilon, double (*f)(double)) {
  const Matrix<double> seen = first(X, X.size());
  for (auto& e : X) {
    e = norm(e + attend(e, seen, layer.W), layer.norm1, epsilon);
    e = norm(e + perceptron(e, layer.mlp, f), layer.norm2, epsilon);
  }
}

TEST(TokenByToken, EDTransformer) {
  const auto theta = random_theta<EDTheta<double>>(small(), 21);
  const double epsilon = theta.hyper.epsilon;
  States Z = embedded(kContext, theta.embedding), X = embedded(kText, theta.embedding);
  for (const auto& layer : theta.encoder) encoder_layer(Z, layer, epsilon, relu);
  const Matrix<double> context = first(Z, Z.size());
  for (const auto& layer : theta.decoder) {
    States next;
    for (std::size_t t = 0; t < X.size(); ++t) {
      Vector<double> e = norm(X[t] + attend(X[t], first(X, t + 1), layer.W_dec), layer.norm3, epsilon);
      e = norm(e + attend(e, context, layer.W_ed), layer.norm4, epsilon);
      next.push_back(norm(e + perceptron(e, layer.mlp, relu), layer.norm5, epsilon));
    }
    X = next;
  }
  expect_distributions(EDTransformer(kContext, kText, theta), X, theta.embedding.W_u);
}

TEST(TokenByToken, ETransformer) {
  const auto theta = random_theta<ETheta<double>>(small(), 22);
  const double epsilon = theta.hyper.epsilon;
  States X = embedded(kText, theta.embedding);
  for (const auto& layer : theta.layer) encoder_layer(X, layer, epsilon, gelu);
  for (auto& e : X) e = norm(dense(theta.W_f, e, theta.b_f).unaryExpr(&gelu), theta.norm, epsilon);
  expect_distributions(ETransformer(kText, theta), X, theta.embedding.W_u);
}

TEST(TokenByToken, DTransformer) {
  const auto theta = random_theta<DTheta<double>>(small(), 23);
  const double epsilon = theta.hyper.epsilon;
  States X = embedded(kText, theta.embedding);
  for (const auto& layer : theta.layer) {
    States tilde;
    for (const auto& e : X) tilde.push_back(norm(e, layer.norm1, epsilon));
    for (std::size_t t = 0; t < X.size(); ++t) {
      X[t] += attend(tilde[t], first(tilde, t + 1), layer.W);
      X[t] += perceptron(norm(X[t], layer.norm2, epsilon), layer.mlp, gelu);
    }
  }
  for (auto& e : X) e = norm(e, theta.norm, epsilon);
  expect_distributions(DTransformer(kText, theta), X, theta.embedding.W_u);
}

// -log of the probability of each token but the first, given those before it: not of itself.
TEST(TokenByToken, Losses) {
  const auto d = random_theta<DTheta<double>>(small(), 24);
  const auto ed = random_theta<EDTheta<double>>(small(), 25);
  double d_loss = 0, ed_loss = 0;
  for (std::size_t t = 1; t < kText.size(); ++t) {
    const Tokens before(kText.begin(), kText.begin() + static_cast<std::ptrdiff_t>(t));
    d_loss -= std::log(DTransformer(before, d).rightCols(1)(kText[t] - 1));
    ed_loss -= std::log(EDTransformer(kContext, before, ed).rightCols(1)(kText[t] - 1));
  }
  EXPECT_NEAR(DLoss(kText, d), d_loss, kRounding);
  EXPECT_NEAR(EDLoss(kContext, kText, ed), ed_loss, kRounding);
}

}  // namespace
}  // namespace qkv::formal::token_by_token_test
