// Tests the plain loops, the reference for all other kernels, against formulas in f64 and finite
// differences.
// Covers: qkv/kernels/generic/generic.cc
#include <bit>
#include <functional>

#include "tests/unit/kernels/attention_testing.h"

namespace qkv::generic_kernels_test {
namespace {

// Central differences of fourth order: off by h^4/30 f^(5), and by 1.5/h times the error of f.
double derivative(const std::function<double(double)>& f, double x, double h) {
  return (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h);
}

// The nearest of the two bf16 neighbours of x, the even one on a tie; infinity beyond the halfway point after
// the largest. Works on values, not on the rounding trick of the implementation.
uint16_t nearest_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const auto value = [](uint32_t half) {
    if ((half & 0x7FFF) == 0x7F80)
      return std::copysign(0x1p128, half & 0x8000 ? -1.0 : 1.0);  // as if the range continued
    return double{std::bit_cast<float>(half << 16)};
  };
  const uint32_t towards_zero = u >> 16;
  if (std::isinf(x)) return static_cast<uint16_t>(towards_zero);
  const double below = std::abs(double{x} - value(towards_zero)),
               above = std::abs(value(towards_zero + 1) - double{x});
  if (below == above) return static_cast<uint16_t>(towards_zero + (towards_zero & 1));
  return static_cast<uint16_t>(below < above ? towards_zero : towards_zero + 1);
}

TEST(GenericConversion, RoundsToNearestEven) {
  for (uint32_t upper = 0; upper < 65536; ++upper)
    for (const uint32_t lower : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const float x = std::bit_cast<float>(upper << 16 | lower);
      const BFloat16 got(x);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(static_cast<float>(got)));
        ASSERT_EQ(std::signbit(x), std::signbit(static_cast<float>(got)));
      } else {
        ASSERT_EQ(got.bits, nearest_bf16(x)) << std::hexfloat << x;
      }
    }
}

// The formulas once more, in f64 and without the shortcuts.
double activate(Activation kind, double x) {
  switch (kind) {
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * std::pow(x, 3))));
    case Activation::gelu_quick:
      return x / (1 + std::exp(-1.702 * x));
    case Activation::relu_squared:
      return x > 0 ? x * x : 0;
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::tanh:
      return 1 - 2 / (std::exp(2 * x) + 1);
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::identity:
    case Activation::xielu:
      return x;
  }
  return 0;
}

TEST(GenericActivation, AgreesWithF64AndDifferences) {
  const auto x = Buffer<float>::normal(2000, 1, 3), dy = Buffer<float>::normal(2000, 2);
  for (const Activation kind :
       {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::gelu_quick, Activation::silu,
        Activation::relu_squared, Activation::tanh, Activation::sigmoid, Activation::identity}) {
    Buffer<float> y(x.size()), dx(x.size());
    generic_kernels().f32.activation(kind, x.size(), x.data(), y.data());
    generic_kernels().f32.activation_grad(kind, x.size(), x.data(), dy.data(), dx.data());
    for (int64_t i = 0; i < x.size(); ++i) {
      const double size_of_y = kind == Activation::sigmoid
                                   ? 1
                                   : std::abs(x[i]) * (kind == Activation::relu_squared ? std::abs(x[i]) : 1);
      // |tanh x| <= |x|; 1.702 x in an exponent errs by half an eps of its own size
      EXPECT_NEAR(y[i], activate(kind, x[i]), 5 * kEps * size_of_y);
      const bool kinked = kind == Activation::relu || kind == Activation::relu_squared;
      if (kinked && std::abs(x[i]) < 0.01) continue;
      // h = 2^-9: h^4/30 f^(5), and f^(5) < 30. The rest as in activation_grad_bound of kernels_test.cc.
      const double slope = derivative([&](double t) { return activate(kind, t); }, x[i], 0x1p-9);
      const double size = 1 + std::abs(x[i]) * 0.8 * (1 + 0.134145 * double{x[i]} * x[i]);
      EXPECT_NEAR(dx[i], dy[i] * slope, std::abs(dy[i]) * (0x1p-36 + 4 * kEps * size)) << "x = " << x[i];
    }
  }
}

struct Normed {
  double mean = 0, rstd = 0;
  std::vector<double> y;
};
Normed norm(const std::vector<double>& s, const Buffer<float>& gamma, const Buffer<float>& beta) {
  Normed out;
  const auto width = static_cast<double>(s.size());
  double variance = 0;
  for (const double e : s) out.mean += e / width;
  for (const double e : s) variance += (e - out.mean) * (e - out.mean) / width;
  out.rstd = 1 / std::sqrt(variance + 1e-5);
  for (size_t c = 0; c < s.size(); ++c)
    out.y.push_back((s[c] - out.mean) * out.rstd * gamma.at(static_cast<int64_t>(c)) +
                    beta.at(static_cast<int64_t>(c)));
  return out;
}

TEST(GenericResidualNorm, AgreesWithF64AndDifferences) {
  const int64_t rows = 3, width = 19;
  const auto x = Buffer<float>::normal(rows * width, 1), branch = Buffer<float>::normal(rows * width, 2);
  const auto gamma = Buffer<float>::normal(width, 3), beta = Buffer<float>::normal(width, 4);
  const auto dy = Buffer<float>::normal(rows * width, 5), in = Buffer<float>::normal(rows * width, 6);
  Buffer<float> sum(rows * width), y(rows * width), mean(rows), rstd(rows), dsum(rows * width);
  auto dgamma = Buffer<float>::constant(width, 1), dbeta = Buffer<float>::constant(width, 2);
  generic_kernels().f32.residual_norm({rows,
                                       width,
                                       x.data(),
                                       branch.data(),
                                       {},
                                       gamma.data(),
                                       beta.data(),
                                       1e-5f,
                                       sum.data(),
                                       y.data(),
                                       mean.data(),
                                       rstd.data()});
  generic_kernels().f32.residual_norm_grad({rows, width, dy.data(), in.data(), sum.data(), gamma.data(),
                                            mean.data(), rstd.data(), dsum.data(), dgamma.data(),
                                            dbeta.data()});
  std::vector<double> want_dgamma(width, 1), want_dbeta(width, 2);
  // Terms are of order 1 to 4, sums of 19 of them: 100 eps of slack.
  const double tolerance = 100 * kEps;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<double> s(width);
    for (int64_t c = 0; c < width; ++c) s[c] = sum.at(r * width + c);
    const Normed want = norm(s, gamma, beta);
    EXPECT_NEAR(mean[r], want.mean, tolerance);
    EXPECT_NEAR(rstd[r], want.rstd, tolerance);
    for (int64_t c = 0; c < width; ++c) {
      EXPECT_EQ(sum[r * width + c], x[r * width + c] + branch[r * width + c]);
      EXPECT_NEAR(y[r * width + c], want.y[c], tolerance);
      want_dgamma[c] += dy.at(r * width + c) * (s[c] - want.mean) * want.rstd;
      want_dbeta[c] += dy.at(r * width + c);
      const double slope = derivative(
          [&](double value) {
            std::vector<double> moved = s;
            moved[c] = value;
            const Normed n = norm(moved, gamma, beta);
            double loss = 0;
            for (int64_t j = 0; j < width; ++j) loss += dy.at(r * width + j) * n.y[j];
            return loss;
          },
          s[c], 1e-3);
      EXPECT_NEAR(dsum[r * width + c], in.at(r * width + c) + slope, tolerance);
    }
  }
  for (int64_t c = 0; c < width; ++c) {
    EXPECT_NEAR(dgamma[c], want_dgamma[c], tolerance);
    EXPECT_NEAR(dbeta[c], want_dbeta[c], tolerance);
  }
}

TEST(GenericCrossEntropy, AgreesWithF64AndDifferences) {
  const int64_t rows = 3, vocab = 11, stride = 13;
  const auto logits = Buffer<float>::normal(rows * stride, 1, 3);
  const std::vector<int32_t> target = {4, kIgnored, 0};
  Buffer<float> losses(rows), dlogits(rows * stride);
  generic_kernels().f32.cross_entropy(
      {rows, vocab, logits.data(), stride, target.data(), 0.5f, losses.data(), dlogits.data()});
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<double> z(vocab);
    for (int64_t j = 0; j < vocab; ++j) z[j] = logits.at(r * stride + j);
    const auto loss = [&] {
      double sum = 0;
      for (const double e : z) sum += std::exp(e);
      return target[r] == kIgnored ? 0 : std::log(sum) - z[target[r]];
    };
    EXPECT_NEAR(losses[r], loss(), 40 * kEps);  // terms are about 10
    for (int64_t j = 0; j < stride; ++j) {
      double slope = 0;
      if (j < vocab)
        slope = derivative(
            [&](double value) {
              std::swap(z[j], value);
              const double l = loss();
              std::swap(z[j], value);
              return l;
            },
            z[j], 1e-3);
      EXPECT_NEAR(dlogits[r * stride + j], 0.5 * slope, 20 * kEps);
    }
  }
}

// sum(dout * attention(q, k, v)) differentiated along each element of q, k and v. An error bound of out, b,
// becomes 1.5 b / h, summed over the outputs; h^4 is 1e-6 of derivatives of order 1.
TEST(GenericAttention, GradientAgreesWithDifferences) {
  for (const Mask& mask : {Mask::causal(), Mask::sliding(2), Mask::full()})
    for (const float p : {0.0f, 0.4f}) {
      AttentionProblem<float> x({.name = {},
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .d_qk = 3,
                                 .d_vo = 2,
                                 .queries = {3, 1, 2},
                                 .keys = {4, 3, 0},
                                 .mask = mask,
                                 .p = p,
                                 .block_rows = 2});
      const auto b = x.backward(generic_kernels(), x.forward(generic_kernels()));
      const AttentionOracle oracle = attention_oracle(x, false);
      const double h = 0x1p-5;
      double bound = 4e-6;
      for (int64_t i = 0; i < x.dout.size(); ++i)
        bound += 1.5 / h * oracle.out.bound[i] * std::abs(x.dout.at(i));
      ASSERT_LT(bound, 0.05);  // otherwise it does not test gradients of order 1
      const auto check = [&](Buffer<float>& input, const Buffer<float>& gradient, const char* what) {
        for (int64_t i = 0; i < input.size(); ++i) {
          const float kept = input[i];
          const double slope = derivative(
              [&](double value) {
                input[i] = static_cast<float>(value);
                const auto f = x.forward(generic_kernels());
                double loss = 0;
                for (int64_t j = 0; j < f.out.size(); ++j) loss += x.dout.at(j) * f.out.at(j);
                return loss;
              },
              kept, h);
          input[i] = kept;
          EXPECT_NEAR(gradient[i], slope, bound) << what << "[" << i << "]";
        }
      };
      check(x.q, b.dq, "dq");
      check(x.k, b.dk, "dk");
      check(x.v, b.dv, "dv");
    }
}

// Algorithm 2 of Loshchilov & Hutter, in f64, for a few steps.
TEST(GenericAdamW, FollowsThePaper) {
  const double lr = 0.01, beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8, decay = 0.1;
  float w = 1.5f, m = 0, v = 0;
  double want = 1.5, want_m = 0, want_v = 0;
  for (int t = 1; t <= 5; ++t) {
    const double g = std::sin(t);
    want_m = beta1 * want_m + (1 - beta1) * g;
    want_v = beta2 * want_v + (1 - beta2) * g * g;
    const double bias1 = 1 - std::pow(beta1, t), bias2 = 1 - std::pow(beta2, t);
    want -= lr * (want_m / bias1 / (std::sqrt(want_v / bias2) + epsilon) + decay * want);
    const auto grad = static_cast<float>(2 * g);
    BFloat16 shadow;
    generic_kernels().update({.rule = Rule::adam,
                              .lr = static_cast<float>(lr),
                              .grad_scale = 0.5f,
                              .decay = 0.1f,
                              .beta1 = 0.9f,
                              .beta2 = 0.99f,
                              .epsilon = 1e-8f,
                              .bias1 = static_cast<float>(bias1),
                              .bias2 = static_cast<float>(bias2)},
                             1, &w, &grad, &m, &v, &shadow);
    // 1 - beta2 in f32 is off by eps/0.02, of which the root takes half; steps are lr long and add up.
    EXPECT_NEAR(w, want, t * (kEps * 2 + lr * 60 * kEps));
    EXPECT_EQ(shadow.bits, BFloat16(w).bits);
  }
}

}  // namespace
}  // namespace qkv::generic_kernels_test
