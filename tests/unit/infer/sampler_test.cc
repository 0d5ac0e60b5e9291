// Covers: qkv/infer/log_prob.cc
#include "qkv/infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "qkv/infer/log_prob.h"
#include "tests/unit/expect_error.h"

namespace qkv::sampler_test {
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
  for (int i = 0; i < draws; ++i)
    ++n[sample(logits, {}, options, static_cast<double>(rng() >> 11) * 0x1p-53)];
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
  for (const double u : {0.0, 0.5, 0.999999}) EXPECT_EQ(sample(kLogits, {}, {.temperature = 0}, u), 2);
  EXPECT_EQ(argmax(std::vector<float>{1, 1, 1}), 0);
  EXPECT_EQ(argmax(std::vector<float>{-5}), 0);
  EXPECT_EQ(argmax(std::vector<float>{-INFINITY, -2, -2}), 1);
}

TEST(Sampler, TemperatureOneIsFaithful) {
  constexpr int kDraws = 40000;
  EXPECT_LT(chi_square(counts(kLogits, {}, kDraws), softmax(kLogits, 1), kDraws), kLimit);
  // The test detects a difference: 1.1 is not 1.
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
    EXPECT_EQ(sample(kLogits, {}, {.temperature = t}, 0), 2) << t;
    EXPECT_EQ(sample(kLogits, {}, {.temperature = t}, 0.9), 6) << t;  // equally likely
  }
}

TEST(Sampler, ImpossibleTokensAreNeverDrawn) {
  const std::vector<float> logits = {-INFINITY, 1, -INFINITY, 1, -INFINITY};
  for (const double t : {0.5, 1.0, 1e9})
    for (const double u : {0.0, 0.49, 0.51, 1 - 0x1p-53}) {
      const int32_t token = sample(logits, {}, {.temperature = t}, u);
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
    EXPECT_EQ(sample(logits, {}, {}, 0.25 * i), i);
    EXPECT_EQ(sample(logits, {}, {}, 0.25 * i + 0.2499), i);
  }
  EXPECT_EQ(sample(logits, {}, {}, 1 - 0x1p-53), 3);
}

// ---- All options together, against the definitions with a full sort

using Probabilities = std::vector<double>;

void normalize(Probabilities& p) {
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
}

// Keeps the fewest tokens whose probability reaches `mass`, taken in ascending order of `rank`.
void keep_until(Probabilities& p, const std::vector<double>& rank, double mass) {
  std::vector<int> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return rank[a] < rank[b]; });
  double sum = 0;
  for (const int i : order) {
    if (sum >= mass) p[i] = 0;
    sum += p[i];
  }
  normalize(p);
}

Probabilities definition(const std::vector<float>& logits, const History& history, const SamplerOptions& o) {
  std::vector<double> z(logits.begin(), logits.end());
  const auto count = [](std::span<const int32_t> tokens, size_t i) {
    return std::count(tokens.begin(), tokens.end(), static_cast<int32_t>(i));
  };
  for (size_t i = 0; i < z.size(); ++i) {
    const auto in_continuation = count(history.continuation, i);
    if (count(history.prompt, i) + in_continuation > 0)
      z[i] = z[i] < 0 ? z[i] * o.repetition_penalty : z[i] / o.repetition_penalty;
    z[i] -= static_cast<double>(in_continuation) * o.frequency_penalty +
            (in_continuation > 0) * o.presence_penalty;
    if (count(o.excluded, i) > 0) z[i] = -INFINITY;
  }
  Probabilities p;
  for (const double x : z) p.push_back(std::exp(x / o.temperature));
  normalize(p);
  std::vector<double> sorted = p, rank;
  std::sort(sorted.rbegin(), sorted.rend());
  if (o.top_k > 0 && o.top_k < static_cast<int64_t>(p.size()))
    for (double& x : p)
      if (x < sorted[o.top_k - 1]) x = 0;  // the cases have no ties
  normalize(p);
  for (const double x : p) rank.push_back(-x);
  keep_until(p, rank, o.top_p < 1 ? o.top_p : 2);
  const double most = *std::max_element(p.begin(), p.end());
  for (double& x : p)
    if (x < o.min_p * most) x = 0;
  normalize(p);
  double entropy = 0;
  for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
  for (size_t i = 0; i < p.size(); ++i) rank[i] = p[i] > 0 ? std::abs(-std::log(p[i]) - entropy) : INFINITY;
  keep_until(p, rank, o.typical_p < 1 ? o.typical_p : 2);
  return p;
}

// The sampler inverts the cumulative distribution: both ends of a token's interval give that token.
// Penalised logits of size 10 are rounded to f32 and divided by a temperature: 5e-6.
void expect_distribution(const std::vector<float>& logits, const History& history, const SamplerOptions& o,
                         const Probabilities& p) {
  constexpr double kTolerance = 5e-6;
  double below = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 2 * kTolerance) {
      ASSERT_EQ(sample(logits, history, o, below + kTolerance), static_cast<int32_t>(i)) << "p " << p[i];
      ASSERT_EQ(sample(logits, history, o, below + p[i] - kTolerance), static_cast<int32_t>(i))
          << "p " << p[i];
    }
    below += p[i];
  }
}

TEST(Sampler, AllOptionsTogetherEqualTheirDefinitions) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal(0, 2);
  const auto uniform = [&] { return static_cast<double>(rng()) / 4294967296.0; };
  const auto maybe = [&](double value, double neutral) { return rng() % 2 ? value : neutral; };
  for (int n = 0; n < 1000; ++n) {
    SCOPED_TRACE(n);
    std::vector<float> logits(1 + rng() % 600);
    for (float& z : logits) z = normal(rng);
    std::vector<int32_t> prompt(rng() % 20), continuation(rng() % 20);
    for (auto* tokens : {&prompt, &continuation})
      for (int32_t& t : *tokens) t = static_cast<int32_t>(rng() % std::min<size_t>(logits.size(), 9));
    SamplerOptions o;
    o.temperature = maybe(0.3 + 2 * uniform(), 1);
    o.top_k = static_cast<int64_t>(maybe(1 + rng() % 400, 0));
    o.top_p = maybe(0.01 + 0.99 * uniform(), 1);
    o.min_p = maybe(0.3 * uniform(), 0);
    o.typical_p = maybe(0.01 + 0.99 * uniform(), 1);
    o.repetition_penalty = maybe(0.5 + uniform(), 1);
    o.frequency_penalty = maybe(2 * uniform() - 1, 0);
    o.presence_penalty = maybe(2 * uniform() - 1, 0);
    if (rng() % 2 && logits.size() > 4) o.excluded = {3, 1};
    const History history{prompt, continuation};
    expect_distribution(logits, history, o, definition(logits, history, o));
  }
}

// Numbers that can be checked by hand.
TEST(Sampler, MinPIsRelativeToTheLikeliest) {
  // Probabilities 0.4, 0.3, 0.2, 0.1.
  const std::vector<float> logits = {std::log(0.2F), std::log(0.4F), std::log(0.1F), std::log(0.3F)};
  const auto kept = [&](double p) {
    std::string s;
    for (const int c : counts(logits, {.min_p = p}, 2000)) s += c > 0 ? '1' : '0';
    return s;
  };
  EXPECT_EQ(kept(0.2), "1111");
  EXPECT_EQ(kept(0.26), "1101");
  EXPECT_EQ(kept(0.51), "0101");
  EXPECT_EQ(kept(1), "0100");
}

TEST(Sampler, TypicalSamplingMayLeaveOutTheLikeliest) {
  // 0.4 and ten of 0.06: the entropy is 2.05, -log 0.4 = 0.92 is 1.14 away and -log 0.06 = 2.81 only 0.76.
  std::vector<float> logits(11, std::log(0.06F));
  logits[4] = std::log(0.4F);
  const auto n = counts(logits, {.typical_p = 0.5}, 5000);
  EXPECT_EQ(n[4], 0);
  EXPECT_EQ(std::count(n.begin(), n.end(), 0), 2);  // nine of ten: 0.54 >= 0.5
  EXPECT_EQ(n[10], 0);                              // the last id among equals
}

TEST(Sampler, PenaltiesCountWhatTheyShould) {
  const std::vector<float> logits = {2, -1, 3, 1};
  const std::vector<int32_t> prompt = {2}, continuation = {0, 0};
  const History history{prompt, continuation};
  const auto chosen = [&](const SamplerOptions& o) { return sample(logits, history, o, 0); };
  EXPECT_EQ(chosen({.temperature = 0}), 2);
  EXPECT_EQ(chosen({.temperature = 0, .repetition_penalty = 2.5}), 2);  // 0.8, -1, 1.2, 1
  EXPECT_EQ(chosen({.temperature = 0, .repetition_penalty = 3.5}), 3);  // 0.57, -1, 0.86, 1
  EXPECT_EQ(chosen({.temperature = 0, .frequency_penalty = 5}), 2);     // the prompt does not count
  EXPECT_EQ(chosen({.temperature = 0, .frequency_penalty = -0.6}), 0);  // twice 0.6: 3.2
  EXPECT_EQ(chosen({.temperature = 0, .presence_penalty = -0.6}), 2);   // once: 2.6
  EXPECT_EQ(chosen({.temperature = 0, .presence_penalty = -1.1}), 0);
  EXPECT_EQ(chosen({.temperature = 0, .excluded = {2}}), 0);
  // A negative logit is multiplied, so that it does not become likelier.
  const std::vector<float> negative = {-1, -1.5F};
  EXPECT_EQ(sample(negative, {std::vector<int32_t>{0}, {}}, {.temperature = 0, .repetition_penalty = 2}, 0),
            1);
}

TEST(Sampler, RefusesIdsOutsideTheVocabularyAndNoChoiceAtAll) {
  const std::vector<float> logits = {0, 1};
  expect_error([&] { sample(logits, {}, {.excluded = {2}}, 0); }, {"token 2", "has 2"});
  expect_error([&] { sample(logits, {}, {.excluded = {0, 1}}, 0); }, {"no token is possible"});
  const std::vector<int32_t> bad = {-1};
  expect_error([&] { sample(logits, {bad, {}}, {.repetition_penalty = 2}, 0); }, {"token -1"});
}

TEST(LogProb, IsTheLogarithmOfTheSoftmax) {
  const auto p = softmax(kLogits, 1);
  const double normalizer = log_normalizer(kLogits);
  for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(kLogits[i] - normalizer, std::log(p[i]), 1e-12);
  const auto best = most_likely(kLogits, 3);
  ASSERT_EQ(best.size(), 3U);
  for (const auto& [rank, id] : {std::pair{0, 2}, {1, 6}, {2, 4}}) {
    EXPECT_EQ(best[rank].id, id);
    EXPECT_NEAR(best[rank].log_p, std::log(p[id]), 1e-12);
  }
  EXPECT_EQ(most_likely(kLogits, 100).size(), kLogits.size());
  EXPECT_TRUE(most_likely(kLogits, 0).empty());
  EXPECT_NEAR(log_normalizer(std::vector<float>{1000, 1000}), 1000 + std::log(2), 1e-9);
}

TEST(Sampler, OptionsThatMakeNoSenseAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double t : {-1.0, nan})
    expect_error([&] { check_options(SamplerOptions{.temperature = t}); }, {"temperature"});
  expect_error([] { check_options(SamplerOptions{.top_k = -1}); }, {"top-k", "-1"});
  for (const double p : {0.0, -0.5, 1.5, nan})
    expect_error([&] { check_options(SamplerOptions{.top_p = p}); }, {"top-p"});
  for (const double p : {-0.1, 1.1, nan})
    expect_error([&] { check_options(SamplerOptions{.min_p = p}); }, {"min-p"});
  for (const double p : {0.0, 1.1, nan})
    expect_error([&] { check_options(SamplerOptions{.typical_p = p}); }, {"typical-p"});
  for (const double x : {0.0, -1.0, 1e9, nan})
    expect_error([&] { check_options(SamplerOptions{.repetition_penalty = x}); }, {"repetition-penalty"});
  for (const double x : {-1e9, double{INFINITY}, nan}) {
    expect_error([&] { check_options(SamplerOptions{.frequency_penalty = x}); }, {"frequency-penalty"});
    expect_error([&] { check_options(SamplerOptions{.presence_penalty = x}); }, {"presence-penalty"});
  }
  EXPECT_NO_THROW(check_options(SamplerOptions{}));
  EXPECT_NO_THROW(check_options(SamplerOptions{.temperature = 0, .top_k = 1, .top_p = 0.1}));
}

}  // namespace
}  // namespace qkv::sampler_test
