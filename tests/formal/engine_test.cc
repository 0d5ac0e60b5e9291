// The engine against the specification: random small decoders must have the same probabilities, losses,
// gradients, trained parameters and generated tokens as Algorithms 10, 13 and 14.

#include <limits>

#include "formal/gradient.h"
#include "formal/inference.h"
#include "formal/training.h"
#include "formal/transformer.h"
#include "qkv/infer/generate.h"
#include "qkv/optim/training_state.h"
#include "tests/formal/engine_case.h"

namespace qkv::engine_test {
namespace {

using formal::DTheta;

Batch batch_of(const std::vector<Tokens>& data) {
  TokenStream stream;
  for (const Tokens& x : data) stream.append(engine_ids(x));
  return cut_windows(stream, {0}, stream.size());
}

class EngineAgainstFormal : public ::testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override { RecordProperty("seed", static_cast<int>(GetParam())); }
  Case<DTheta<double>> c_ = random_case<DTheta<double>>(GetParam());
  Uniform u_{GetParam() + 1000};
};

TEST_P(EngineAgainstFormal, Probabilities) {
  const auto model = engine_model(c_);
  std::vector<Tokens> data;
  for (int i = 0; i < 3; ++i)
    data.push_back(random_tokens(c_.spec, u_, between(u_, 1, static_cast<int>(c_.spec.context))));
  const Batch batch = batch_of(data);  // the formal sequences one by one, the engine's all at once
  Context context;
  const NoGrad guard;
  const Tensor logits = model->logits(model->hidden(batch, context));
  int64_t row = 0;
  for (const Tokens& x : data) {
    expect_probabilities(logits, row, formal::DTransformer(x, c_.theta), GetParam());
    row += formal::length(x);
  }
}

TEST_P(EngineAgainstFormal, LossAndEveryGradient) {
  const auto model = engine_model(c_);
  const Tokens x = random_tokens(c_.spec, u_, static_cast<int>(c_.spec.context)),
               y = random_tokens(c_.spec, u_, 2);
  const auto loss = [&](const auto& theta) { return formal::DLoss(x, theta) + formal::DLoss(y, theta); };
  const auto want = formal::loss_and_gradient(loss, c_.theta);
  for (const bool recompute : {false, true}) {
    const auto trained = engine_model(c_);
    trained->set_recompute(recompute);
    trained->parameters().prepare_training(DType::f32, 0);
    trained->parameters().reset_gradients();
    const Batch batch = batch_of({x, y});
    Context context;
    context.training = true;  // without dropout: the same thing
    const CrossEntropyResult r = trained->loss(batch, batch.targets, context, 1);
    EXPECT_NEAR(r.total / want.loss, 1, kTolerance);
    backward(r.loss);
    trained->parameters().complete_gradients();
    const auto gradients = engine_values(c_, want.gradient, true);
    expect_gradients_near(
        *trained, gradients, c_.theta, loss,
        [&](const auto& theta) { return engine_values(c_, theta, true); }, GetParam(),
        recompute ? ", recomputed" : "");
  }
}

TEST_P(EngineAgainstFormal, ParametersAfterSgd) {
  constexpr double kEta = 0.02;
  constexpr int kEpochs = 2, kData = 3;
  c_ = random_case<DTheta<double>>(GetParam(), false);  // Algorithm 13 would move the heads of a group apart
  std::vector<Tokens> data;
  for (int i = 0; i < kData; ++i)
    data.push_back(random_tokens(c_.spec, u_, static_cast<int>(c_.spec.context)));
  auto theta = c_.theta;
  theta = formal::DTraining(data, theta, kEpochs, kEta);
  StepConfig config;
  config.optimizer.name = "sgd";
  config.optimizer.weight_decay = 0;
  config.schedule.name = "constant";
  config.schedule.warmup_steps = 0;
  config.clip = 0;
  config.schedule.learning_rate =
      kEta * static_cast<double>(c_.spec.context - 1);  // the paper's loss is a sum, ours a mean
  TrainingState training(engine_model(c_), config);
  for (int64_t step = 1; step <= kEpochs * kData; ++step)
    training.step({batch_of({data[(step - 1) % kData]})}, step, kEpochs * kData);
  const auto want = engine_values(c_, theta, false);
  for (const Parameter& p : training.model().parameters().all())
    EXPECT_LT(deviation(p.master.values<float>(), want.at(p.name), largest(want)),
              10 * kTolerance)  // each step of six amplifies what the last one rounded
        << p.name << ", seed " << GetParam();
}

// Greedy, and sampled with the same random numbers; also beyond l_max.
TEST_P(EngineAgainstFormal, GeneratedTokens) {
  const auto model = engine_model(c_);
  const Tokens prompt = random_tokens(c_.spec, u_, between(u_, 1, static_cast<int>(c_.spec.context)));
  for (const double tau : {0.0, 0.7, 1.0, 3.0, std::numeric_limits<double>::infinity()}) {
    GenerateOptions options;
    options.sampler.temperature = tau;
    options.max_new_tokens = c_.spec.context + 3;
    options.seed = GetParam();
    uint64_t i = 0;
    const auto uniform = [&] { return RandomStream{options.seed, i++, 0}.uniform(0); };
    const Tokens want = formal::DInference(prompt, c_.theta, options.max_new_tokens, tau, uniform);
    EXPECT_EQ(generate(*model, {engine_ids(prompt)}, options)[0], engine_ids(want))
        << "tau " << tau << ", seed " << GetParam();
  }
}

INSTANTIATE_TEST_SUITE_P(Random, EngineAgainstFormal, ::testing::Range(0u, seeds()));

}  // namespace
}  // namespace qkv::engine_test
