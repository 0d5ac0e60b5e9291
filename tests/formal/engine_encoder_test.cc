// The engine against the specification: random small encoders, with masked tokens to predict, and
// encoder-decoders against Algorithms 8, 9, 11, 12 and 15.

#include <limits>

#include "formal/gradient.h"
#include "formal/inference.h"
#include "formal/training.h"
#include "formal/transformer.h"
#include "qkv/infer/generate.h"
#include "qkv/train/training_state.h"
#include "tests/formal/engine_case.h"

namespace qkv {
namespace {

using formal::EDTheta;
using formal::ETheta;

// Sequences side by side.
struct Flat {
  std::vector<int32_t> ids, lengths;
  void append(const Tokens& x) {
    for (const int32_t id : engine_ids(x)) ids.push_back(id);
    lengths.push_back(static_cast<int32_t>(x.size()));
  }
  Tensor tensor() const { return Tensor::of({static_cast<int64_t>(ids.size())}, ids); }
  Layout layout() const { return Layout::of(lengths); }
};

Batch batch_of(const Flat& x, const std::vector<int32_t>& targets) {
  Batch b;
  b.ids = x.tensor();
  b.layout = x.layout();
  b.targets = Tensor::of({static_cast<int64_t>(targets.size())}, targets);
  for (const int32_t t : targets) b.target_count += t != kIgnored;
  return b;
}

// Every token is followed by the next.
Batch next_tokens(const std::vector<std::pair<Tokens, Tokens>>& data) {
  Flat source, x;
  std::vector<int32_t> targets;
  for (const auto& [z, to] : data) {
    source.append(z);
    x.append(to);
    const std::vector<int32_t> ids = engine_ids(to);
    targets.insert(targets.end(), ids.begin() + 1, ids.end());
    targets.push_back(kIgnored);
  }
  Batch b = batch_of(x, targets);
  b.source = source.tensor();
  b.source_layout = source.layout();
  return b;
}

// The original's tokens where x~ has mask_token.
Batch masked_tokens(const std::vector<std::pair<Tokens, Tokens>>& data, int mask) {
  Flat x;
  std::vector<int32_t> targets;
  for (const auto& [original, masked] : data) {
    x.append(masked);
    for (size_t t = 0; t < original.size(); ++t)
      targets.push_back(masked[t] == mask ? original[t] - 1 : kIgnored);
  }
  return batch_of(x, targets);
}

StepConfig plain_sgd(double rate) {
  StepConfig config;
  config.optimizer.name = "sgd";
  config.optimizer.weight_decay = 0;
  config.schedule.name = "constant";
  config.schedule.warmup_steps = 0;
  config.schedule.learning_rate = rate;
  config.clip = 0;
  return config;
}

// Losses and gradients of a batch, kept and recomputed.
template <typename Theta, typename Loss>
void expect_gradients(const Case<Theta>& c, const Batch& batch, const Loss& loss, unsigned seed) {
  const auto want = formal::loss_and_gradient(loss, c.theta);
  const Values gradients = engine_values(c, want.gradient, true);
  for (const bool recompute : {false, true}) {
    const auto model = engine_model(c);
    model->set_recompute(recompute);
    model->parameters().prepare_training(DType::f32, 0);
    model->parameters().reset_gradients();
    Context context;
    context.training = true;  // without dropout: the same thing
    const CrossEntropyResult r = model->loss(batch, batch.targets, context, 1);
    EXPECT_NEAR(r.total, want.loss, kTolerance * std::max(1.0, want.loss));
    backward(r.loss);
    model->parameters().complete_gradients();
    for (const Parameter& p : model->parameters().all())
      EXPECT_LT(deviation(p.leaf->grad.values<float>(), gradients.at(p.name), largest(gradients)), kTolerance)
          << p.name << ", seed " << seed << (recompute ? ", recomputed" : "");
  }
}

template <typename Theta>
void expect_parameters(TrainingState& training, const Case<Theta>& c, const Theta& theta, unsigned seed) {
  const Values want = engine_values(c, theta, false);
  for (const Parameter& p : training.model().parameters().all())
    EXPECT_LT(deviation(p.master.values<float>(), want.at(p.name), largest(want)), 10 * kTolerance)
        << p.name << ", seed " << seed;
}

class EncoderAgainstFormal : public ::testing::TestWithParam<unsigned> {
 protected:
  Tokens sequence() { return random_tokens(c_.spec, u_, between(u_, 1, static_cast<int>(c_.spec.context))); }
  // Algorithm 12's x and x~.
  std::pair<Tokens, Tokens> masked(const Tokens& x) {
    Tokens x_tilde = formal::mask_randomly(x, c_.spec.vocab_size, 0.4, u_);
    x_tilde[0] = mask();  // something to predict
    return {x, x_tilde};
  }
  int mask() const { return formal::mask_token(c_.spec.vocab_size); }
  Case<ETheta<double>> c_ = random_case<ETheta<double>>(GetParam());
  Uniform u_{GetParam() + 1000};
};

TEST_P(EncoderAgainstFormal, Probabilities) {
  const auto model = engine_model(c_);
  Flat flat;
  std::vector<Tokens> data;
  for (int i = 0; i < 3; ++i) flat.append(data.emplace_back(sequence()));
  const NoGrad guard;
  const Tensor logits = model->logits(model->hidden({flat.tensor(), flat.layout()}, {}));
  int64_t row = 0;
  for (const Tokens& x : data) {
    expect_probabilities(logits, row, formal::ETransformer(x, c_.theta), GetParam());
    row += formal::length(x);
  }
}

TEST_P(EncoderAgainstFormal, LossAndEveryGradient) {
  const auto x = masked(sequence()), y = masked(sequence());
  expect_gradients(
      c_, masked_tokens({x, y}, mask()),
      [&](const auto& theta) {
        return formal::ELoss(x.first, x.second, theta) + formal::ELoss(y.first, y.second, theta);
      },
      GetParam());
}

TEST_P(EncoderAgainstFormal, ParametersAfterSgd) {
  constexpr double kEta = 0.02;
  c_ = random_case<ETheta<double>>(GetParam(), false);
  std::vector<Tokens> data;
  for (int i = 0; i < 3; ++i) data.push_back(random_tokens(c_.spec, u_, static_cast<int>(c_.spec.context)));
  Uniform masks(GetParam()), again(GetParam());
  const auto theta = formal::ETraining(data, c_.theta, 2, kEta, 0.5, masks);
  std::unique_ptr<TrainingState> training;
  for (int step = 0; step < 6; ++step) {
    const Tokens& x = data[step % 3];
    const Batch batch =
        masked_tokens({{x, formal::mask_randomly(x, c_.spec.vocab_size, 0.5, again)}}, mask());
    if (batch.target_count == 0) continue;  // a loss of 0, which moves nothing
    // The paper's loss is a sum, ours a mean: a step of its own rate each.
    auto model = engine_model(c_);
    if (training)
      for (Parameter& p : model->parameters().all())
        p.value = training->model().parameters().find(p.name)->master.clone();
    training = std::make_unique<TrainingState>(std::move(model),
                                               plain_sgd(kEta * static_cast<double>(batch.target_count)));
    training->step({batch}, 1, 1);
  }
  ASSERT_NE(training, nullptr);
  expect_parameters(*training, c_, theta, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Random, EncoderAgainstFormal, ::testing::Range(0u, seeds()));

class EncoderDecoderAgainstFormal : public ::testing::TestWithParam<unsigned> {
 protected:
  Tokens sequence(int least = 1) {
    return random_tokens(c_.spec, u_, between(u_, least, static_cast<int>(c_.spec.context)));
  }
  Case<EDTheta<double>> c_ = random_case<EDTheta<double>>(GetParam());
  Uniform u_{GetParam() + 1000};
};

TEST_P(EncoderDecoderAgainstFormal, Probabilities) {
  const auto model = engine_model(c_);
  std::vector<std::pair<Tokens, Tokens>> data;
  for (int i = 0; i < 3; ++i) {
    Tokens z = sequence();
    data.emplace_back(std::move(z), sequence());
  }
  const NoGrad guard;
  const Tensor logits = model->logits(model->hidden(next_tokens(data), {}));
  int64_t row = 0;
  for (const auto& [z, x] : data) {
    expect_probabilities(logits, row, formal::EDTransformer(z, x, c_.theta), GetParam());
    row += formal::length(x);
  }
}

TEST_P(EncoderDecoderAgainstFormal, LossAndEveryGradient) {
  const std::pair<Tokens, Tokens> a{sequence(), sequence(2)}, b{sequence(), sequence(2)};
  expect_gradients(
      c_, next_tokens({a, b}),
      [&](const auto& theta) {
        return formal::EDLoss(a.first, a.second, theta) + formal::EDLoss(b.first, b.second, theta);
      },
      GetParam());
}

TEST_P(EncoderDecoderAgainstFormal, ParametersAfterSgd) {
  constexpr double kEta = 0.02;
  constexpr int kEpochs = 2;
  c_ = random_case<EDTheta<double>>(GetParam(), false);
  const int length = static_cast<int>(c_.spec.context);
  std::vector<std::pair<Tokens, Tokens>> data;
  for (int i = 0; i < 3; ++i) {
    Tokens z = sequence();
    data.emplace_back(std::move(z), random_tokens(c_.spec, u_, length));
  }
  const auto theta = formal::EDTraining(data, c_.theta, kEpochs, kEta);
  TrainingState training(engine_model(c_), plain_sgd(kEta * (length - 1)));
  for (int64_t step = 1; step <= kEpochs * 3; ++step)
    training.step({next_tokens({data[(step - 1) % 3]})}, step, kEpochs * 3);
  expect_parameters(training, c_, theta, GetParam());
}

// Algorithm 15, greedy and sampled with the same random numbers; several sources at once.
TEST_P(EncoderDecoderAgainstFormal, GeneratedTokens) {
  const auto model = engine_model(c_);
  const formal::Index N_V = c_.spec.vocab_size;
  const std::vector<Tokens> data = {sequence(), sequence(), sequence()};
  std::vector<std::vector<int32_t>> sources;
  for (const Tokens& z : data) sources.push_back(engine_ids(z));
  for (const double tau : {0.0, 0.7, 1.0, 3.0, std::numeric_limits<double>::infinity()}) {
    GenerateOptions options;
    options.sampler.temperature = tau;
    options.max_new_tokens = c_.spec.context - 1;
    options.seed = GetParam();
    options.eos = {formal::eos_token(N_V) - 1};
    const std::vector<std::vector<int32_t>> prompts(3, {formal::bos_token(N_V) - 1});
    const auto got = generate(*model, prompts, options, nullptr, sources);
    for (size_t s = 0; s < data.size(); ++s) {
      uint64_t i = 0;
      const auto uniform = [&] { return RandomStream{options.seed + s, i++, 0}.uniform(0); };
      std::vector<int32_t> want = engine_ids(formal::EDInference(data[s], c_.theta, tau, uniform));
      want.erase(want.begin());  // bos
      EXPECT_EQ(got[s], want) << "tau " << tau << ", source " << s << ", seed " << GetParam();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Random, EncoderDecoderAgainstFormal, ::testing::Range(0u, seeds()));

}  // namespace
}  // namespace qkv
