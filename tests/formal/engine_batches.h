// Batches of the objectives of formal/, and what the engine makes of them.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "formal/gradient.h"
#include "formal/objectives.h"
#include "qkv/optim/training_state.h"
#include "tests/formal/engine_case.h"

namespace qkv {

using formal::ETheta;

// Sequences side by side.
struct Flat {
  std::vector<int32_t> ids, lengths;
  void append(const Tokens& x) {
    for (const int32_t id : engine_ids(x)) ids.push_back(id);
    lengths.push_back(static_cast<int32_t>(x.size()));
  }
  Layout layout() const { return Layout::of(lengths); }
};

inline Batch batch_of(const Flat& x, const std::vector<int32_t>& targets) {
  Batch b;
  b.ids = x.ids;
  b.layout = x.layout();
  b.targets = targets;
  for (const int32_t t : targets) b.target_count += t != kIgnored;
  return b;
}

// Every token is followed by the next.
inline Batch next_tokens(const std::vector<std::pair<Tokens, Tokens>>& data) {
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
  b.source = source.ids;
  b.source_layout = source.layout();
  return b;
}

// The original's tokens at the positions where x~ has mask_token.
inline Batch masked_tokens(const std::vector<std::pair<Tokens, Tokens>>& data, int mask) {
  Flat x;
  std::vector<int32_t> targets;
  for (const auto& [original, masked] : data) {
    x.append(masked);
    for (size_t t = 0; t < original.size(); ++t)
      targets.push_back(masked[t] == mask ? original[t] - 1 : kIgnored);
  }
  return batch_of(x, targets);
}

inline StepConfig plain_sgd(double rate) {
  StepConfig config;
  config.optimizer.name = "sgd";
  config.optimizer.weight_decay = 0;
  config.schedule.name = "constant";
  config.schedule.warmup_steps = 0;
  config.schedule.learning_rate = rate;
  config.clip = 0;
  return config;
}

// Losses and gradients of a batch, with activations kept and recomputed.
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
    context.training = true;  // equal, because there is no dropout
    const CrossEntropyResult r = model->loss(batch, batch.targets, context, 1);
    const double near = kTolerance * std::max(1.0, want.loss);
    EXPECT_NEAR(r.loss.values<float>()[0], want.loss, near);
    if (!c.spec.mtp.any()) {
      EXPECT_NEAR(r.total, want.loss, near);
    }
    backward(r.loss);
    model->parameters().complete_gradients();
    expect_gradients_near(
        *model, gradients, c.theta, loss, [&](const Theta& theta) { return engine_values(c, theta, true); },
        seed, recompute ? ", recomputed" : "");
  }
}

template <typename Theta>
void expect_parameters(TrainingState& training, const Case<Theta>& c, const Theta& theta, unsigned seed) {
  const Values want = engine_values(c, theta, false);
  for (const Parameter& p : training.model().parameters().all())
    EXPECT_LT(deviation(p.master.values<float>(), want.at(p.name), largest(want)), 10 * kTolerance)
        << p.name << ", seed " << seed;
}

// Recovers, from the targets, the tokens that masked_batch() chose in a sequence and those that it shows
// instead.
inline formal::Chosen chosen_in(const Batch& batch, size_t sequence) {
  formal::Chosen c;
  for (int32_t r = batch.layout.offsets[sequence]; r < batch.layout.offsets[sequence + 1]; ++r) {
    c.x_tilde.push_back(batch.ids[r] + 1);
    if (batch.targets[r] != kIgnored) c.T_tilde.push_back(r - batch.layout.offsets[sequence] + 1);
  }
  return c;
}

}  // namespace qkv
