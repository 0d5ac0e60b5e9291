// Update rules against their formulas in double.
// Covers: qkv/optim/schedule.cc
#include "qkv/optim/optimizer.h"

#include <cmath>
#include <numbers>
#include <random>

#include "qkv/base/parallel.h"
#include "qkv/optim/schedule.h"
#include "tests/unit/expect_error.h"

namespace qkv::optimizer_test {
namespace {

// Odd sizes, so that SIMD tails occur; bf16 shadows for the matrix.
std::unique_ptr<Parameters> parameters_of(DType compute = DType::bf16, int64_t rows = 65) {
  auto p = std::make_unique<Parameters>();
  p->add("w", {rows, 17}, ParameterKind::matrix, {Initializer::Kind::normal, 1});
  p->add("b", {33}, ParameterKind::vector, {Initializer::Kind::normal, 1});
  p->prepare_training(compute, 1);
  return p;
}

void fill_gradients(Parameters& p, uint64_t seed) {
  std::mt19937_64 rng(seed);
  for (Parameter& x : p.all())
    for (int64_t i = 0; i < x.shape.count(); ++i)
      x.leaf->grad.mutable_data<float>()[i] =
          static_cast<float>(std::ldexp(static_cast<double>(rng() >> 11), -52) - 1);
}

std::vector<double> wide(const Tensor& x) {
  return {x.data<float>(), x.data<float>() + x.count()};
}

TEST(AdamW, EqualsItsFormula) {
  OptimizerConfig c;
  c.weight_decay = 0.1;
  c.beta1 = 0.9;
  c.beta2 = 0.99;
  const auto p = parameters_of();
  const auto optimizer = make_optimizer(c, *p);
  std::vector<std::vector<double>> w, m, v;
  for (Parameter& x : p->all()) {
    w.push_back(wide(x.master));
    m.emplace_back(w.back().size());
    v.emplace_back(w.back().size());
  }
  constexpr double kScale = 0.7;
  for (int64_t t = 1; t <= 20; ++t) {
    fill_gradients(*p, static_cast<uint64_t>(t));
    const double lr = 0.01 / static_cast<double>(t);
    size_t k = 0;
    for (Parameter& x : p->all()) {
      const auto g = wide(x.leaf->grad);
      const double decay = x.kind == ParameterKind::matrix ? c.weight_decay : 0;  // vectors are exempt
      for (size_t i = 0; i < g.size(); ++i) {
        const double gi = kScale * g[i];
        m[k][i] = c.beta1 * m[k][i] + (1 - c.beta1) * gi;
        v[k][i] = c.beta2 * v[k][i] + (1 - c.beta2) * gi * gi;
        const double mean = m[k][i] / (1 - std::pow(c.beta1, t)),
                     square = v[k][i] / (1 - std::pow(c.beta2, t));
        w[k][i] -= lr * (mean / (std::sqrt(square) + c.epsilon) + decay * w[k][i]);
      }
      ++k;
    }
    optimizer->update(*p, t, lr, kScale);
  }
  // Betas are rounded to f32: 1 - 0.99 is off by 6e-8 / 0.01 = 3e-6 of itself (half an ulp of 1), v's root by
  // half of that; f32 moments add a few 1e-7 a step. An update is at most about lr, and the rates sum to
  // 0.036. The weights themselves, below 4, round by 2.4e-7 each step, 20 steps: 5e-6 at worst.
  for (size_t k = 0; k < w.size(); ++k) {
    const auto got = wide(p->all()[k].master);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], w[k][i], 5e-6) << k << " " << i;
  }
  const Parameter& x = p->all()[0];
  for (int64_t i = 0; i < x.shape.count(); ++i)
    ASSERT_EQ(x.value.data<BFloat16>()[i].bits, BFloat16(x.master.data<float>()[i]).bits);
}

TEST(AdamW, WithoutGradientOnlyMatricesDecay) {
  OptimizerConfig c;
  c.weight_decay = 0.5;
  const auto p = parameters_of(DType::f32);
  const auto optimizer = make_optimizer(c, *p);
  const auto w = wide(p->find("w")->master), b = wide(p->find("b")->master);
  optimizer->update(*p, 1, 0.1, 1);  // gradients are zero
  for (size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(wide(p->find("w")->master)[i], w[i] * 0.95, 1e-6);
  EXPECT_EQ(wide(p->find("b")->master), b);
}

TEST(AdamW, ContinuesFromItsState) {
  const OptimizerConfig c;
  const auto p = parameters_of(), q = parameters_of();
  const auto a = make_optimizer(c, *p), b = make_optimizer(c, *q);
  const auto step = [&](Parameters& x, Optimizer& o, int64_t t) {
    fill_gradients(x, static_cast<uint64_t>(t));
    o.update(x, t, 0.01, 1);
  };
  for (int64_t t = 1; t <= 3; ++t) step(*p, *a, t);
  // A checkpoint holds masters and state.
  for (size_t k = 0; k < 2; ++k)
    std::memcpy(q->all()[k].master.raw(), p->all()[k].master.raw(), p->all()[k].master.bytes());
  q->refresh_shadows();
  auto from = a->state(), to = b->state();
  ASSERT_EQ(from.size(), 4U);
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i].first, to[i].first);
    std::memcpy(to[i].second.raw(), from[i].second.raw(), from[i].second.bytes());
  }
  for (int64_t t = 4; t <= 6; ++t) {
    step(*p, *a, t);
    step(*q, *b, t);
  }
  for (size_t k = 0; k < 2; ++k) EXPECT_EQ(wide(p->all()[k].master), wide(q->all()[k].master));
}

TEST(Sgd, EqualsItsFormula) {
  OptimizerConfig c;
  c.name = "sgd";
  c.weight_decay = 0;
  const auto p = parameters_of();
  const auto optimizer = make_optimizer(c, *p);
  EXPECT_TRUE(optimizer->state().empty());
  auto w = wide(p->find("w")->master);
  for (int64_t t = 1; t <= 5; ++t) {
    fill_gradients(*p, static_cast<uint64_t>(t));
    const auto g = wide(p->find("w")->leaf->grad);
    for (size_t i = 0; i < w.size(); ++i) w[i] -= 0.1 * 0.3 * g[i];
    optimizer->update(*p, t, 0.1, 0.3);
  }
  const auto got = wide(p->find("w")->master);
  for (size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(got[i], w[i], 5 * 3e-7);  // half an ulp of 4 a step
  const Parameter& x = *p->find("w");
  for (int64_t i = 0; i < x.shape.count(); ++i)
    ASSERT_EQ(x.value.data<BFloat16>()[i].bits, BFloat16(x.master.data<float>()[i]).bits);
}

// Each rule updates a parameter by its own learning rate, and does not change one with rate 0.
TEST(Optimizer, RatesBelongToParameters) {
  for (const std::string& name : optimizer_names()) {
    SCOPED_TRACE(name);
    OptimizerConfig c;
    c.name = name;
    const auto mixed = parameters_of(), slow = parameters_of(), fast = parameters_of();
    mixed->find("w")->rate = 0.25F;
    const std::unique_ptr<Optimizer> rules[] = {make_optimizer(c, *mixed), make_optimizer(c, *slow),
                                                make_optimizer(c, *fast)};
    for (int64_t step = 1; step <= 3; ++step) {
      Parameters* all[] = {mixed.get(), slow.get(), fast.get()};
      for (int i = 0; i < 3; ++i) {
        fill_gradients(*all[i], static_cast<uint64_t>(step));
        rules[i]->update(*all[i], step, i == 1 ? 0.0025 : 0.01, 1);
      }
    }
    const auto expect_same = [](const Parameter& a, const Parameter& b) {
      for (int64_t i = 0; i < a.shape.count(); ++i)
        EXPECT_NEAR(a.master.data<float>()[i], b.master.data<float>()[i], 1e-6);
    };
    expect_same(*mixed->find("w"), *slow->find("w"));
    expect_same(*mixed->find("b"), *fast->find("b"));

    const auto still = parameters_of();
    still->find("w")->rate = 0;
    const Tensor before = still->find("w")->master.clone();
    fill_gradients(*still, 1);
    make_optimizer(c, *still)->update(*still, 1, 0.01, 1);
    EXPECT_EQ(wide(still->find("w")->master), wide(before));
    EXPECT_NE(wide(still->find("b")->master), wide(parameters_of()->find("b")->master));
  }
}

TEST(Optimizer, UnknownNamesAreRefused) {
  OptimizerConfig c;
  c.name = "adamax";
  const auto p = parameters_of();
  testing::expect_error([&] { make_optimizer(c, *p); }, {"optimizer", "'adamax'"});
}

TEST(GradientNorm, IsTheSameForEveryNumberOfThreads) {
  const auto p = parameters_of(DType::f32, 20'000);  // several blocks
  fill_gradients(*p, 3);
  double squares = 0;
  for (Parameter& x : p->all())
    for (const double g : wide(x.leaf->grad)) squares += g * g;
  const int threads = num_threads();
  const double norm = gradient_norm(*p);
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-6 * norm);
  for (const int n : {1, 2, 3, 7}) {
    set_num_threads(n);
    EXPECT_EQ(gradient_norm(*p), norm) << n;
  }
  set_num_threads(threads);
}

TEST(LearningRate, WarmsUpThenFollowsTheCosine) {
  ScheduleConfig c;
  c.learning_rate = 1;
  c.min_learning_rate = 0.1;
  c.warmup_steps = 10;
  for (int64_t t = 1; t <= 10; ++t)
    EXPECT_DOUBLE_EQ(learning_rate_at(c, t, 110), 0.1 * static_cast<double>(t));
  EXPECT_NEAR(learning_rate_at(c, 60, 110), 0.55, 1e-12);  // half way
  EXPECT_NEAR(learning_rate_at(c, 35, 110), 0.1 + 0.45 * (1 + std::cos(std::numbers::pi / 4)), 1e-12);
  EXPECT_NEAR(learning_rate_at(c, 110, 110), 0.1, 1e-12);
  for (int64_t t = 11; t < 110; ++t) EXPECT_GT(learning_rate_at(c, t, 110), learning_rate_at(c, t + 1, 110));
}

TEST(LearningRate, OtherSchedules) {
  ScheduleConfig c;
  c.learning_rate = 1;
  c.min_learning_rate = 0.1;
  c.warmup_steps = 0;
  EXPECT_LT(learning_rate_at(c, 1, 10), 1);  // no warm-up: starts with the cosine
  EXPECT_GT(learning_rate_at(c, 1, 10), 0.9);
  c.name = "constant";
  EXPECT_EQ(learning_rate_at(c, 1, 10), 1);
  EXPECT_EQ(learning_rate_at(c, 10, 10), 1);
  c.warmup_steps = 4;
  EXPECT_EQ(learning_rate_at(c, 2, 10), 0.5);
  EXPECT_EQ(learning_rate_at(c, 5, 10), 1);
  c.warmup_steps = 20;  // longer than the run
  EXPECT_EQ(learning_rate_at(c, 10, 10), 0.5);
}

TEST(LearningRate, FallsAsItsScheduleSays) {
  ScheduleConfig c;
  c.learning_rate = 1;
  c.min_learning_rate = 0.25;
  c.warmup_steps = 4;
  c.name = "linear";
  EXPECT_EQ(learning_rate_at(c, 4, 10), 1);
  EXPECT_EQ(learning_rate_at(c, 8, 10), 0.5);
  EXPECT_EQ(learning_rate_at(c, 10, 10), 0.25);
  c.name = "inverse_sqrt";  // independent of the run's length (Vaswani et al. 2017, eq. 3)
  EXPECT_EQ(learning_rate_at(c, 2, 10), 0.5);
  EXPECT_EQ(learning_rate_at(c, 4, 10), 1);
  EXPECT_EQ(learning_rate_at(c, 16, 10), 0.5);
  EXPECT_EQ(learning_rate_at(c, 64, 1000), 0.25);
  c.warmup_steps = 0;
  EXPECT_EQ(learning_rate_at(c, 4, 10), 0.5);
  c.name = "one_cycle";  // up from a 25th of the rate, then down to the minimum (Smith & Topin 2018)
  c.warmup_steps = 4;
  EXPECT_NEAR(learning_rate_at(c, 2, 10), (1 + 1.0 / 25) / 2, 1e-12);
  EXPECT_EQ(learning_rate_at(c, 4, 10), 1);
  EXPECT_NEAR(learning_rate_at(c, 7, 10), 0.625, 1e-12);
  EXPECT_NEAR(learning_rate_at(c, 10, 10), 0.25, 1e-12);
}

}  // namespace
}  // namespace qkv::optimizer_test
