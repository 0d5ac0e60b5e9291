// Mixtures of experts: the choice and its weights, products by expert, sums of their outputs.
#include "qkv/ops/experts.h"

#include "tests/gradient/gradient_check.h"

namespace qkv::experts_test {
namespace {

using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

// Logits of each token are at least 0.5 apart, so that finite differences do not change the choice.
Tensor spaced_logits(int64_t rows, int64_t experts) {
  Tensor x = uniform({rows, experts}, 3, -0.125, 0.125);
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t e = 0; e < experts; ++e)
      x.mutable_data<float>()[n * experts + e] += 0.75F * static_cast<float>((5 * e + 3 * n) % experts) - 1;
  return x;
}

ChoiceOptions options(int64_t chosen, RouterScore score, bool renormalized, int64_t groups = 1) {
  ChoiceOptions o;
  o.chosen = chosen;
  o.score = score;
  o.renormalized = renormalized;
  o.scale = 1.5F;
  o.groups = groups;
  o.chosen_groups = (groups + 1) / 2;
  return o;
}

TEST(ChoiceGradient, IsTheDifference) {
  for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid})
    for (const bool renormalized : {false, true})
      for (const int64_t experts : {1, 4, 6})
        for (const int64_t chosen : {1, 2, 3})
          for (const int64_t groups : {1, 2}) {
            const int64_t size = experts / groups;
            if (experts % groups != 0 || chosen > (groups + 1) / 2 * size) continue;
            SCOPED_TRACE(::testing::Message() << "experts " << experts << ", chosen " << chosen);
            // Bound of the fifth derivative, by one logit, of a quotient of up to three affinities times
            // 1.5.
            expect_gradients(
                [&](const Tensors& t) {
                  return Tensors{choose_experts(t[0], options(chosen, score, renormalized, groups)).weights};
                },
                {spaced_logits(7, experts)}, {.fifth = 40, .bf16 = false});
          }
}

// Chooses the best of all, the first among equals; only from the best groups; with the bias for the choice
// alone.
TEST(Choice, TakesTheBest) {
  const Tensor logits = Tensor::of({1, 6}, std::vector<float>{1, 3, 3, 2, 2.5F, 0});
  const auto chosen = [&](const ChoiceOptions& o) {
    const Indices e = choose_experts(logits, o).experts;
    return std::vector<int32_t>(e.values().begin(), e.values().end());
  };
  ChoiceOptions o = options(2, RouterScore::softmax, false);
  EXPECT_EQ(chosen(o), (std::vector<int32_t>{1, 2}));
  o.chosen = 3;
  EXPECT_EQ(chosen(o), (std::vector<int32_t>{1, 2, 4}));
  o = options(2, RouterScore::softmax, false, 3);
  o.chosen_groups = 1;  // two experts per group: the best of the first equals that of the second
  EXPECT_EQ(chosen(o), (std::vector<int32_t>{1, 0}));
  o.score = RouterScore::sigmoid;  // by the sum of both the second group wins
  EXPECT_EQ(chosen(o), (std::vector<int32_t>{2, 3}));
  o = options(1, RouterScore::sigmoid, true);
  o.bias = Tensor::of({6}, std::vector<float>{0, 0, 0, 0, 0, 9});
  EXPECT_EQ(chosen(o), (std::vector<int32_t>{5}));
  EXPECT_EQ(choose_experts(logits, o).weights.data<float>()[0], 1.5F);
  EXPECT_THROW(choose_experts(logits, options(7, RouterScore::softmax, false)), Error);
  EXPECT_THROW(choose_experts(logits, options(1, RouterScore::softmax, false, 4)), Error);
}

// Affinities that vanish leave weights of 0, and no NaN.
TEST(Choice, OfVanishingAffinitiesIsFinite) {
  Tensor logits = Tensor::of({1, 3}, std::vector<float>{-200, -300, -150});
  const auto leaf = make_leaf(logits, Tensor::zeros({1, 3}, DType::f32));
  const Choice choice = choose_experts(logits, options(2, RouterScore::sigmoid, true));
  const Seed seed{choice.weights, Tensor::of({1, 2}, std::vector<float>{1, -2})};
  backward(std::span(&seed, 1));
  for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(choice.weights.data<float>()[i], 0);
  for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isfinite(leaf->grad.data<float>()[i]));
}

// E sum_i f_i P_i by its definition, as a function of logits with a fixed choice.
TEST(ChoiceGradient, HasTheBalancingTerm) {
  constexpr int64_t kRows = 5, kExperts = 4;
  constexpr float kBalance = 0.3F;
  for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
    ChoiceOptions o = options(2, score, false);
    o.balance = kBalance;
    Tensor logits = spaced_logits(kRows, kExperts);
    const auto term = [&](const Tensor& x) {
      double mean[kExperts] = {}, load[kExperts] = {}, sum = 0;
      const Choice c = choose_experts(x, o);
      for (int64_t i = 0; i < c.experts.count(); ++i) load[c.experts[i]] += 1.0 / kRows;
      for (int64_t n = 0; n < kRows; ++n) {
        double p[kExperts], all = 0;
        for (int64_t e = 0; e < kExperts; ++e) {
          const double z = x.data<float>()[n * kExperts + e];
          all += p[e] = score == RouterScore::softmax ? std::exp(z) : 1 / (1 + std::exp(-z));
        }
        for (int64_t e = 0; e < kExperts; ++e) mean[e] += p[e] / all / kRows;
      }
      for (int64_t e = 0; e < kExperts; ++e) sum += load[e] * mean[e];
      return kBalance * kExperts * sum;
    };
    const auto leaf = make_leaf(logits, Tensor::zeros(logits.shape(), DType::f32));
    const Choice choice = choose_experts(logits, o);
    const Seed seed{choice.weights, Tensor::zeros(choice.weights.shape(), DType::f32)};
    backward(std::span(&seed, 1));
    const NoGrad guard;
    for (int64_t i = 0; i < logits.count(); ++i) {
      Tensor more = logits.detach().clone(), less = more.clone();
      const float h = 0x1p-6F;
      more.mutable_data<float>()[i] += h;
      less.mutable_data<float>()[i] -= h;
      EXPECT_NEAR(leaf->grad.data<float>()[i], (term(more) - term(less)) / (2 * h), 2e-5) << i;
    }
  }
}

TEST(ExpertLinearGradient, IsTheDifference) {
  for (const std::vector<int32_t>& offsets :
       {std::vector<int32_t>{0, 5}, {0, 2, 2, 9, 10}, {0, 0, 3}, {0, 0, 0}, {0, 17, 33}})
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {33, 17}}) {
      const int64_t rows = offsets.back(), experts = std::ssize(offsets) - 1;
      expect_gradients([&](const Tensors& t) { return Tensors{expert_linear(t[0], t[1], {}, offsets)}; },
                       {uniform({rows, in}, 1), uniform({experts * out, in}, 2)},
                       {.h = 0.5, .roundings = 8, .bf16_roundings = 4});
    }
  const std::vector<int32_t> offsets = {0, 2, 3};
  testing::Check check{.h = 0.5, .roundings = 8, .bf16_roundings = 4};
  check.keep_f32 = {2};
  expect_gradients([&](const Tensors& t) { return Tensors{expert_linear(t[0], t[1], t[2], offsets)}; },
                   {uniform({3, 5}, 1), uniform({6, 5}, 2), uniform({6}, 3)}, check);
  EXPECT_THROW(expert_linear(uniform({3, 2}, 1), uniform({4, 2}, 1), uniform({3}, 1), offsets), Error);
  EXPECT_THROW(expert_linear(uniform({4, 2}, 1), uniform({4, 2}, 1), {}, offsets), Error);
  EXPECT_THROW(expert_linear(uniform({3, 2}, 1), uniform({3, 2}, 1), {}, offsets), Error);
}

TEST(ExpertLinear, IsEachExpertsProduct) {
  const std::vector<int32_t> offsets = {0, 1, 1, 3};
  const Tensor x = uniform({3, 4}, 1), w = uniform({6, 4}, 2), y = expert_linear(x, w, {}, offsets);
  const int expert_of[] = {0, 2, 2};
  for (int m = 0; m < 3; ++m)
    for (int o = 0; o < 2; ++o) {
      double sum = 0;
      for (int i = 0; i < 4; ++i)
        sum += double{x.data<float>()[m * 4 + i]} * w.data<float>()[(expert_of[m] * 2 + o) * 4 + i];
      EXPECT_NEAR(y.data<float>()[m * 2 + o], sum, 1e-6);
    }
}

TEST(ScaledRowsGradient, IsTheDifference) {
  const Indices places({4, 0, 1, 5, 3, 2}, 2);
  for (const int64_t width : {1, 5, 17}) {
    testing::Check check{.h = 0.5, .roundings = 8, .bf16_roundings = 4};
    check.keep_f32 = {1};
    expect_gradients([&](const Tensors& t) { return Tensors{scaled_rows(t[0], places, t[1])}; },
                     {uniform({6, width}, 1), uniform({3, 2}, 2)}, check);
    expect_gradients([&](const Tensors& t) { return Tensors{scaled_rows(t[0], {}, t[1])}; },
                     {uniform({6, width}, 1), uniform({6, 1}, 2)}, check);
  }
  EXPECT_THROW(scaled_rows(uniform({5, 2}, 1), places, uniform({3, 2}, 2)), Error);
  EXPECT_THROW(scaled_rows(uniform({6, 2}, 1), {}, uniform({3, 2}, 2)), Error);
  EXPECT_THROW(scaled_rows(uniform({6, 2}, 1), Indices({0, 0, 1, 2, 3, 4}, 2), uniform({3, 2}, 2)), Error);
}

TEST(WeightedRowsGradient, IsTheDifference) {
  const Indices places({4, 0, 1, 5, 3, 2}, 2);
  for (const int64_t width : {1, 5, 17}) {
    testing::Check check{.h = 0.5, .roundings = 8, .bf16_roundings = 4};
    check.keep_f32 = {1};
    expect_gradients([&](const Tensors& t) { return Tensors{weighted_rows(t[0], places, t[1])}; },
                     {uniform({6, width}, 1), uniform({3, 2}, 2)}, check);
  }
  EXPECT_THROW(weighted_rows(uniform({6, 2}, 1), Indices({4, 0, 1, 5, 3, 3}, 2), uniform({3, 2}, 2)), Error);
}

// Each pair of token and expert appears once, in the order of experts.
TEST(ExpertRows, AreAPermutation) {
  const Indices experts({2, 0, 0, 3, 2, 3, 0, 2}, 2);
  const ExpertRows rows = rows_by_expert(experts, 5);
  EXPECT_EQ(rows.offsets, (std::vector<int32_t>{0, 3, 3, 6, 8, 8}));
  for (int64_t i = 0; i < experts.count(); ++i) {
    const int32_t place = rows.places[i], e = experts[i];
    EXPECT_EQ(rows.tokens[place], i / 2);
    EXPECT_TRUE(rows.offsets[e] <= place && place < rows.offsets[e + 1]);
  }
  EXPECT_THROW(rows_by_expert(experts, 3), Error);
}

}  // namespace
}  // namespace qkv::experts_test
