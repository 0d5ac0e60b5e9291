// Attention by random features in training: when its vectors are drawn anew.
#include "qkv/nn/random_feature_attention.h"

#include <gtest/gtest.h>

#include <vector>

#include "qkv/optim/training_state.h"

namespace qkv::random_feature_attention_test {
namespace {

ModelSpec performer(int64_t redraw) {
  ModelSpec s = gpt2_spec(11, 16, 12, 2, 1);
  RandomFeaturesMixer m;
  m.heads = 3, m.count = 5, m.redraw = redraw;
  s.mixer = m;
  return s;
}

std::vector<float> vectors_of(TrainingState& training, int layer) {
  const auto name = fmt::format("decoder.block.{}.random_features.vectors", layer);
  const auto v = training.model().parameters().find(name)->value.values<float>();
  return {v.begin(), v.end()};
}

Batch batch() {
  TokenStream stream;
  stream.append(std::vector<int32_t>{1, 5, 2, 8, 1, 9, 3, 3, 7});
  return cut_windows(stream, {0}, 8);
}

// No gradient and no noise moves them; every `redraw` steps they change, by seed and step alone.
TEST(RandomFeatureAttention, DrawsItsVectorsAnew) {
  StepConfig config;
  config.gradient_noise = 1;
  for (const bool recompute : {false, true}) {
    TrainingState never(std::make_unique<Transformer>(performer(0)), config,
                        {.seed = 3, .recompute = recompute}),
        training(std::make_unique<Transformer>(performer(2)), config, {.seed = 3, .recompute = recompute}),
        resumed(std::make_unique<Transformer>(performer(2)), config, {.seed = 3, .recompute = recompute});
    const std::vector<float> first = vectors_of(training, 0);
    EXPECT_EQ(vectors_of(never, 0), first);
    EXPECT_NE(vectors_of(training, 1), first);
    std::vector<float> last = first;
    for (int64_t step = 1; step <= 4; ++step) {
      training.step({batch(), batch()}, step, 4);
      never.step({batch(), batch()}, step, 4);
      EXPECT_EQ(vectors_of(training, 0) == last, step % 2 == 1) << step;
      EXPECT_EQ(vectors_of(never, 0), first);
      last = vectors_of(training, 0);
    }
    resumed.step({batch()}, 4, 4);
    EXPECT_EQ(vectors_of(resumed, 0), last);
    // Inference does not change them.
    const NoGrad guard;
    training.model().hidden({Indices({1, 2}), Layout::of({2})}, {});
    EXPECT_EQ(vectors_of(training, 0), last);
  }
}

}  // namespace
}  // namespace qkv::random_feature_attention_test
