// Models with mixtures of experts: the bias of the choice in training, and sequences beyond a capacity.
#include "qkv/nn/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "qkv/optim/training_state.h"
#include "tests/unit/expect_error.h"

namespace qkv::experts_test {
namespace {

ModelSpec mixture() {
  ModelSpec s = gpt2_spec(11, 16, 12, 2, 3);
  s.experts = {.count = 3, .chosen = 2, .hidden = 5, .score = RouterScore::sigmoid};
  s.experts.choice_bias = true;
  return s;
}

// Neither gradients nor noise change the bias of the choice. It falls at a fixed rate for experts that are
// chosen too often.
TEST(Experts, TheChoicesBiasMovesByItsRateAlone) {
  StepConfig config;
  config.gradient_noise = 1;
  TrainingState training(std::make_unique<Transformer>(mixture()), config, {.seed = 3});
  for (const Parameter& p : training.model().parameters().all())
    EXPECT_EQ(p.rate == 0, p.name.ends_with(".router.choice_bias")) << p.name;
  TokenStream stream;
  stream.append(std::vector<int32_t>{1, 5, 2, 8, 1, 9, 3, 3, 7});
  const auto bias = [&] {
    const std::span<const float> b = training.model()
                                         .parameters()
                                         .find("decoder.block.0.feed_forward.router.choice_bias")
                                         ->value.values<float>();
    return std::vector<float>(b.begin(), b.end());
  };
  EXPECT_EQ(bias(), (std::vector<float>{0, 0, 0}));
  training.step({cut_windows(stream, {0}, 8)}, 1, 2);
  const auto once = bias();
  float sum = 0;
  for (const float b : once) {
    EXPECT_TRUE(b == 0 || std::abs(b) == 0.001F) << b;
    sum += std::abs(b);
  }
  EXPECT_GT(sum, 0);
  // Inference does not change the bias.
  const NoGrad guard;
  training.model().hidden({Indices({1, 2}), Layout::of({2})}, {});
  EXPECT_EQ(bias(), once);
}

// Changes once a step, by the loads of all its micro-batches, with and without recomputation, and not if it
// is frozen.
TEST(Experts, TheChoicesBiasMovesOnceAStep) {
  ModelSpec s = mixture();
  s.layer_groups = 1;  // both layers count together
  const auto biases = [&](int64_t parts, bool recompute, bool frozen, double adversarial) {
    StepConfig config;
    config.schedule.warmup_steps = 0;
    config.adversarial = adversarial;
    if (frozen) config.freeze = {"*.router.choice_bias"};
    TrainingState training(std::make_unique<Transformer>(s), config, {.seed = 3, .recompute = recompute});
    TokenStream stream;
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 17; ++i) ids.push_back(i * i * i % 11);
    stream.append(ids);
    std::vector<Batch> batches;
    for (int64_t i = 0; i < parts; ++i) batches.push_back(cut_windows(stream, {16 / parts * i}, 16 / parts));
    training.step(batches, 1, 2);
    const auto b = training.model()
                       .parameters()
                       .find("decoder.block.0.feed_forward.router.choice_bias")
                       ->value.values<float>();
    return std::vector<float>(b.begin(), b.end());
  };
  const auto plain = biases(1, false, false, 0);
  EXPECT_NE(plain, (std::vector<float>{0, 0, 0}));
  for (const float b : plain) EXPECT_LE(std::abs(b), 0.001F);
  EXPECT_EQ(biases(1, true, false, 0), plain);
  EXPECT_EQ(biases(1, false, false, 0.5), plain);
  for (const float b : biases(2, false, false, 0)) EXPECT_LE(std::abs(b), 0.001F);
  EXPECT_EQ(biases(1, false, true, 0), (std::vector<float>{0, 0, 0}));
}

// The bias of the most chosen expert falls until others are chosen.
TEST(Experts, TheChoicesBiasEvensTheLoad) {
  ModelSpec s = mixture();
  s.layers = 1;
  s.experts.chosen = 1;
  s.experts.choice_rate = 0.001F;
  s.experts.balance = 0;
  StepConfig config;
  config.schedule.learning_rate = 0;
  TrainingState training(std::make_unique<Transformer>(s), config, {.seed = 3});
  TokenStream stream;
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 17; ++i) ids.push_back(i * i * i % 11);
  stream.append(ids);
  const Batch batch = cut_windows(stream, {0}, 16);
  const auto most_chosen = [&] {
    const NoGrad guard;
    struct Counts : Probe {
      std::vector<int> of = {0, 0, 0};
      Tensor bias;
      bool wants(std::string_view name) const override { return name.ends_with(".router"); }
      void visit(std::string_view, Tensor& logits) override {
        for (int64_t r = 0; r < logits.rows(); ++r) {
          int64_t best = 0;
          const auto affinity = [&](int64_t e) {
            return 1 / (1 + std::exp(-logits.data<float>()[r * 3 + e])) + bias.data<float>()[e];
          };
          for (int64_t e = 1; e < 3; ++e)
            if (affinity(e) > affinity(best)) best = e;
          ++of[static_cast<size_t>(best)];
        }
      }
    } counts;
    counts.bias =
        training.model().parameters().find("decoder.block.0.feed_forward.router.choice_bias")->value;
    Context context;
    context.probe = &counts;
    training.model().hidden(batch, context);
    return *std::ranges::max_element(counts.of);
  };
  Parameter& bias = *training.model().parameters().find("decoder.block.0.feed_forward.router.choice_bias");
  bias.master.mutable_data<float>()[1] = 0.1F;  // exceeds all differences of affinities: all choose it
  EXPECT_EQ(most_chosen(), 16);
  for (int64_t step = 1; step <= 120; ++step) training.step({batch}, step, 120);
  EXPECT_LE(most_chosen(), 9);
}

TEST(Experts, ACapacityIsNotExceededInSilence) {
  ModelSpec s = mixture();
  s.experts.capacity = 4;
  Transformer model(s);
  model.parameters().draw(3, DType::f32);
  const NoGrad guard;
  const auto hidden = [&](const std::vector<int32_t>& lengths) {
    int32_t n = 0;
    for (const int32_t l : lengths) n += l;
    return model.hidden({Indices(std::vector<int32_t>(static_cast<size_t>(n), 2)), Layout::of(lengths)}, {});
  };
  EXPECT_NO_THROW(hidden({4, 4, 1}));  // the limit is per sequence
  testing::expect_error([&] { hidden({4, 5}); }, {"more than 4 tokens"});
}

}  // namespace
}  // namespace qkv::experts_test
