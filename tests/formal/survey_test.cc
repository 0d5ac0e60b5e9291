// The survey's formulas (formal/survey.h), and the engine against its pseudocode.

#include "formal/survey.h"

#include "tests/formal/varied_case.h"

namespace qkv::survey_test {
namespace {

using formal::Index;
using formal::Vector;

// "f(t + dt) = diag(f(dt)) f(t), where dt in R is the distance one wishes to shift."
TEST(SurveySinusoid, ShiftIsADiagonalMap) {
  for (const double N : {100.0, 10000.0, 1e6})
    for (const Index d : {2, 6, 10})
      for (const double t : {0.0, 3.0, 17.25})
        for (const double dt : {1.0, -2.5, 40.0}) {
          const Vector<double> moved = formal::shift(dt, d, N) * formal::sinusoidal_position(t, d, N);
          EXPECT_LT((moved - formal::sinusoidal_position(t + dt, d, N)).norm(), 1e-12);
          const Eigen::VectorXcd product =
              formal::complex_position(dt, d, N).cwiseProduct(formal::complex_position(t, d, N));
          EXPECT_LT((product - formal::complex_position(t + dt, d, N)).norm(), 1e-12);
        }
}

// "By taking a linear sum, any convolution can also be implemented as linear transformations."
TEST(SurveySinusoid, ConvolutionIsALinearMap) {
  constexpr Index d = 8;
  constexpr double t = 5.5;
  const std::vector<std::pair<double, double>> kernel = {{0.25, -1}, {0.5, 0}, {-1.75, 2.5}};  // c_j, dt_j
  Vector<double> sum = Vector<double>::Zero(d);
  formal::Matrix<double> map = formal::Matrix<double>::Zero(d, d);
  for (const auto& [c, dt] : kernel) {
    sum += c * formal::sinusoidal_position(t + dt, d);
    map += c * formal::shift(dt, d);
  }
  EXPECT_LT((map * formal::sinusoidal_position(t, d) - sum).norm(), 1e-12);
}

// The real form has the imaginary parts first.
TEST(SurveySinusoid, IsTheComplexFormInTwoNumbers) {
  const Vector<double> f = formal::sinusoidal_position(2.5, 6, 500);
  const Eigen::VectorXcd z = formal::complex_position(2.5, 6, 500);
  for (Index k = 0; k < 3; ++k) {
    EXPECT_DOUBLE_EQ(f[2 * k], z[k].imag());
    EXPECT_DOUBLE_EQ(f[2 * k + 1], z[k].real());
  }
}

// With one sequence for keys and values it is Algorithm 4; with three, column t_z of K and of V are a pair.
TEST(SurveyAttentionHead, HasThreeSequences) {
  Uniform u(5);
  const auto random = [&](Index rows, Index columns) {
    return formal::Matrix<double>(
        formal::Matrix<double>::NullaryExpr(rows, columns, [&] { return u() - 0.5; }));
  };
  formal::AttentionParameters<double> W(3, 4, 5, 6);
  W.W_q = random(3, 5), W.W_k = random(3, 6), W.W_v = random(4, 7);
  const formal::Matrix<double> X_q = random(5, 2), X_k = random(6, 3), X_v = random(7, 3);
  const formal::Matrix<double> Y = formal::Attention(X_q, X_k, X_v, W, formal::bidirectional_mask(3, 2));
  ASSERT_EQ(Y.rows(), 4);
  ASSERT_EQ(Y.cols(), 2);
  for (Index t = 0; t < 2; ++t) {  // a mean of the values, by the keys' scores
    Vector<double> mean = Vector<double>::Zero(4);
    double sum = 0;
    for (Index j = 0; j < 3; ++j) {
      const Vector<double> q = W.W_q * X_q.col(t), k = W.W_k * X_k.col(j), v = W.W_v * X_v.col(j);
      const double weight = std::exp(q.dot(k) / std::sqrt(3.0));
      mean += weight * v;
      sum += weight;
    }
    EXPECT_LT((Y.col(t) - mean / sum).norm(), 1e-14);
  }
}

// A pre-LN encoder-decoder whose stacks have embeddings of their own.
TwoStackCase pre_ln_case(unsigned seed) {
  Uniform u(seed);
  ModelSpec s = gpt2_spec(between(u, 4, 12), between(u, 4, 9), 6 * between(u, 1, 2), between(u, 1, 3), 2);
  s.architecture = Architecture::encoder_decoder;
  s.encoder_layers = between(u, 1, 3);
  s.source_vocab_size = s.vocab_size + between(u, 1, 5);
  s.stacks_apart = true;
  s.tied = false;
  s.hidden = between(u, 3, 20);
  s.activation = Activation::relu;
  formal::VariedHyperparameters h;
  h.N_V = s.vocab_size;
  h.l_max = s.context;
  h.L = h.groups = s.layers;
  h.H = h.H_kv = 2;
  h.d_e = s.width;
  h.d_mlp = s.hidden;
  h.d_attn = h.d_mid = s.width / 2;
  h.activation = formal::Activation::ReLU;
  h.epsilon = double{s.norm_epsilon};
  formal::VariedEDHyperparameters both{h, h, true, true, false};
  both.encoder.N_V = s.source_vocab_size;
  both.encoder.L = both.encoder.groups = s.encoder_layers;
  both.encoder.bidirectional = true;
  both.decoder.d_z = s.width;
  formal::VariedEDTheta<double> theta(both);
  formal::fill_parameters(theta, [&](const std::string& name) {
    return double{static_cast<float>(u() - 0.5 + (name.find("gamma") != std::string::npos ? 1.0 : 0.0))};
  });
  return {s, theta};
}

TEST(SurveyPseudocode, IsTheEnginesPreNormEncoderDecoder) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const TwoStackCase c = pre_ln_case(seed);
    check_spec(c.spec);
    Uniform u(seed + 100);
    const auto tokens = [&](int64_t vocabulary) {
      Tokens x;
      for (int i = between(u, 1, static_cast<int>(c.spec.context)); i > 0; --i)
        x.push_back(between(u, 1, static_cast<int>(vocabulary)));
      return x;
    };
    const Tokens z = tokens(c.spec.source_vocab_size), x = tokens(c.spec.vocab_size);
    const formal::Matrix<double> P = formal::PreLNTransformer(z, x, c.theta);
    EXPECT_LT((P - formal::VariedEDTransformer(z, x, c.theta)).cwiseAbs().maxCoeff(), 1e-12)
        << "seed " << seed;
    ModelInput input{engine_ids(x), Layout::of({static_cast<int32_t>(x.size())})};
    input.source = engine_ids(z);
    input.source_layout = Layout::of({static_cast<int32_t>(z.size())});
    const NoGrad guard;
    const auto model = model_of(c);
    expect_probabilities(model->logits(model->hidden(input, {})), 0, P, seed);
  }
}

}  // namespace
}  // namespace qkv::survey_test
