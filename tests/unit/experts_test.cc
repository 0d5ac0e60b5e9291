// Models with mixtures of experts: what training leaves alone, and what a capacity refuses.
#include "qkv/nn/experts.h"

#include <gtest/gtest.h>

#include "qkv/train/training_state.h"
#include "tests/unit/expect_error.h"

namespace qkv {
namespace {

ModelSpec mixture() {
  ModelSpec s = gpt2_spec(11, 16, 12, 2, 3);
  s.experts = {.count = 3, .chosen = 2, .hidden = 5, .score = RouterScore::sigmoid};
  s.experts.choice_bias = true;
  return s;
}

// No gradient says how the bias of the choice should move: neither does noise.
TEST(Experts, TheChoicesBiasStays) {
  StepConfig config;
  config.gradient_noise = 1;
  TrainingState training(std::make_unique<Transformer>(mixture()), config, DType::f32, 3, false);
  for (const Parameter& p : training.model().parameters().all())
    EXPECT_EQ(p.rate == 0, p.name.ends_with(".router.choice_bias")) << p.name;
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
    return model.hidden(
        {Tensor::of({n}, std::vector<int32_t>(static_cast<size_t>(n), 2)), Layout::of(lengths)}, {});
  };
  EXPECT_NO_THROW(hidden({4, 4, 1}));  // of each sequence
  testing::expect_error([&] { hidden({4, 5}); }, {"more than 4 tokens"});
}

}  // namespace
}  // namespace qkv
