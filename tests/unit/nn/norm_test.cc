// The running averages of batch normalisation.
#include "qkv/nn/norm.h"

#include <gtest/gtest.h>

#include "qkv/optim/training_state.h"

namespace qkv::norm_test {
namespace {

Tensor rows(int64_t n, float shift) {
  std::vector<float> x;
  for (int64_t i = 0; i < 2 * n; ++i) x.push_back(shift + static_cast<float>(i % 7) - 3);
  return Tensor::of({n, 2}, x);
}

// Training normalises by the batch and moves the averages a tenth of the way to its statistics. Inference
// normalises by the averages.
TEST(BatchNormLayer, RemembersWhatTrainingSaw) {
  Parameters parameters;
  const Norm norm(parameters, "n", 2, {Normalization::batch, 1e-5F});
  parameters.prepare_training(DType::f32, 1);
  Context training;
  training.training = training.observed = true;
  const auto mean = [&] { return parameters.find("n.mean")->value.data<float>()[0]; };
  const Tensor x = rows(14, 5);
  const Tensor used = norm.forward(x);
  EXPECT_EQ(mean(), 0);
  for (int64_t i = 0; i < x.count(); ++i)  // mean 0 and variance 1 change nothing
    EXPECT_NEAR(used.data<float>()[i], x.data<float>()[i], 1e-4);
  norm.forward(x, training);
  EXPECT_NEAR(mean(), 0.1F * 5, 1e-5);
  {
    const NoGrad guard;  // as in recomputation of blocks
    norm.forward(x, training);
  }
  EXPECT_NEAR(mean(), 0.1F * 5, 1e-5);
  training.observed = false;  // as in a second pass over the same batch
  norm.forward(x, training);
  EXPECT_NEAR(mean(), 0.1F * 5, 1e-5);
  training.observed = true;
  parameters.find("n.mean")->frozen = true;
  norm.forward(x, training);
  EXPECT_NEAR(mean(), 0.1F * 5, 1e-5);
  parameters.find("n.mean")->frozen = false;
  for (int i = 0; i < 200; ++i) norm.forward(x, training);
  const Tensor trained = norm.forward(x, training), later = norm.forward(x);
  for (int64_t i = 0; i < x.count(); ++i) EXPECT_NEAR(trained.data<float>()[i], later.data<float>()[i], 1e-4);
}

// Gradients do not change the averages, and recomputing blocks does not count a batch twice.
TEST(BatchNormLayer, RecomputingRemembersOnce) {
  ModelSpec s = gpt2_spec(11, 16, 12, 2, 3);
  s.normalization = Normalization::batch;
  const auto trained = [&](bool recompute) {
    StepConfig config;
    config.schedule.warmup_steps = 0;
    TrainingState t(std::make_unique<Transformer>(s), config, {.seed = 5, .recompute = recompute});
    TokenStream stream;
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 17; ++i) ids.push_back(i * i % 11);
    stream.append(ids);
    for (int64_t step = 1; step <= 3; ++step) t.step({cut_windows(stream, {0}, 16)}, step, 3);
    std::vector<float> all;
    for (const Parameter& p : t.model().parameters().all()) {
      EXPECT_EQ(p.rate == 0, !p.learned) << p.name;
      all.insert(all.end(), p.master.data<float>(), p.master.data<float>() + p.master.count());
    }
    return all;
  };
  EXPECT_EQ(trained(false), trained(true));
}

}  // namespace
}  // namespace qkv::norm_test
