#include "qkv/infer/sampler.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/unit/expect_error.h"

namespace qkv {
namespace {

using testing::expect_error;

const std::vector<float> kLogits = {0.5F, -1, 2, 0, 1.5F, -3, 2, 1};

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (const float z : logits) sum += p.emplace_back(std::exp(z / temperature));
  for (double& x : p) x /= sum;
  return p;
}

std::vector<int> counts(const std::vector<float>& logits, const SamplerOptions& options, int draws) {
  std::mt19937_64 rng(1);
  std::vector<int> n(logits.size());
  for (int i = 0; i < draws; ++i) ++n[sample(logits, options, static_cast<double>(rng() >> 11) * 0x1p-53)];
  return n;
}

// Pearson's statistic; tokens of probability 0 must not occur at all.
double chi_square(const std::vector<int>& n, const std::vector<double>& p, int draws) {
  double x = 0;
  for (size_t i = 0; i < n.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(n[i], 0) << i;
    } else {
      x += std::pow(n[i] - draws * p[i], 2) / (draws * p[i]);
    }
  }
  return x;
}
// Seven degrees of freedom: larger once in 10^5 times (and the seed is fixed).
constexpr double kLimit = 35;

TEST(Sampler, TemperatureZeroTakesTheFirstLargest) {
  for (const double u : {0.0, 0.5, 0.999999}) EXPECT_EQ(sample(kLogits, {.temperature = 0}, u), 2);
  EXPECT_EQ(argmax(std::vector<float>{1, 1, 1}), 0);
  EXPECT_EQ(argmax(std::vector<float>{-5}), 0);
  EXPECT_EQ(argmax(std::vector<float>{-INFINITY, -2, -2}), 1);
}

TEST(Sampler, TemperatureOneIsFaithful) {
  constexpr int kDraws = 40000;
  EXPECT_LT(chi_square(counts(kLogits, {}, kDraws), softmax(kLogits, 1), kDraws), kLimit);
  // The test can tell: 1.1 is not 1.
  EXPECT_GT(chi_square(counts(kLogits, {.temperature = 1.1}, kDraws), softmax(kLogits, 1), kDraws), kLimit);
  EXPECT_LT(chi_square(counts(kLogits, {.temperature = 0.3}, kDraws), softmax(kLogits, 0.3), kDraws), kLimit);
}

TEST(Sampler, LargeTemperaturesTendToUniform) {
  constexpr int kDraws = 20000;
  const std::vector<double> even(8, 0.125);
  EXPECT_LT(chi_square(counts(kLogits, {.temperature = 1e6}, kDraws), even, kDraws), kLimit);
  EXPECT_LT(chi_square(counts(kLogits, {.temperature = INFINITY}, kDraws), even, kDraws), kLimit);
}

TEST(Sampler, TinyTemperaturesTendToTheLargest) {
  for (const double t : {1e-3, 1e-30, std::numeric_limits<double>::denorm_min()}) {
    EXPECT_EQ(sample(kLogits, {.temperature = t}, 0), 2) << t;
    EXPECT_EQ(sample(kLogits, {.temperature = t}, 0.9), 6) << t;  // as likely
  }
}

TEST(Sampler, ImpossibleTokensAreNeverDrawn) {
  const std::vector<float> logits = {-INFINITY, 1, -INFINITY, 1, -INFINITY};
  for (const double t : {0.5, 1.0, 1e9})
    for (const double u : {0.0, 0.49, 0.51, 1 - 0x1p-53}) {
      const int32_t token = sample(logits, {.temperature = t}, u);
      EXPECT_EQ(token, u < 0.5 ? 1 : 3);
    }
}

TEST(Sampler, TopKKeepsTheMostLikely) {
  constexpr int kDraws = 20000;
  std::vector<double> p = softmax(kLogits, 1);
  for (const size_t i : {0, 1, 3, 5, 7}) p[i] = 0;
  const double sum = p[2] + p[4] + p[6];
  for (double& x : p) x /= sum;
  EXPECT_LT(chi_square(counts(kLogits, {.top_k = 3}, kDraws), p, kDraws), kLimit);
  // Exactly k, at ties the lower ids.
  const auto n = counts({1, 1, 1, 1}, {.top_k = 2}, 1000);
  EXPECT_GT(n[0], 0);
  EXPECT_GT(n[1], 0);
  EXPECT_EQ(n[2] + n[3], 0);
  EXPECT_EQ(counts(kLogits, {.top_k = 1}, 100)[2], 100);
  // More than there are: all.
  EXPECT_EQ(counts(kLogits, {.top_k = 100}, 1000), counts(kLogits, {}, 1000));
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  // Probabilities 0.4, 0.3, 0.2, 0.1.
  const std::vector<float> logits = {std::log(0.2F), std::log(0.4F), std::log(0.1F), std::log(0.3F)};
  const auto kept = [&](double p) {
    std::string s;
    const auto n = counts(logits, {.top_p = p}, 2000);
    for (const int c : n) s += c > 0 ? '1' : '0';
    return s;
  };
  EXPECT_EQ(kept(1e-9), "0100");
  EXPECT_EQ(kept(0.39), "0100");
  EXPECT_EQ(kept(0.41), "0101");
  EXPECT_EQ(kept(0.69), "0101");
  EXPECT_EQ(kept(0.71), "1101");
  EXPECT_EQ(kept(0.95), "1111");
  EXPECT_EQ(kept(1), "1111");
  // After top-k: of what is left. 0.4 / 0.7 > 0.5.
  EXPECT_EQ(counts(logits, {.top_k = 2, .top_p = 0.5}, 500)[1], 500);
  // After the temperature: uniform 0.25 each.
  int tokens = 0;
  for (const int c : counts(logits, {.temperature = INFINITY, .top_p = 0.5}, 1000)) tokens += c > 0;
  EXPECT_EQ(tokens, 2);
}

// The inverse of the cumulative distribution in order of ids.
TEST(Sampler, TheUniformNumberDecides) {
  const std::vector<float> logits = {0, 0, 0, 0};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(sample(logits, {}, 0.25 * i), i);
    EXPECT_EQ(sample(logits, {}, 0.25 * i + 0.2499), i);
  }
  EXPECT_EQ(sample(logits, {}, 1 - 0x1p-53), 3);
}

TEST(Sampler, OptionsThatMakeNoSenseAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double t : {-1.0, nan})
    expect_error([&] { check_options({.temperature = t}); }, {"temperature"});
  expect_error([] { check_options({.top_k = -1}); }, {"top-k", "-1"});
  for (const double p : {0.0, -0.5, 1.5, nan}) expect_error([&] { check_options({.top_p = p}); }, {"top-p"});
  EXPECT_NO_THROW(check_options({}));
  EXPECT_NO_THROW(check_options({.temperature = 0, .top_k = 1, .top_p = 0.1}));
}

}  // namespace
}  // namespace qkv
