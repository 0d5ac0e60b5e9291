#include "qkv/train/training_state.h"

#include <algorithm>
#include <cmath>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"

namespace qkv {
namespace {

constexpr ParameterKind kKinds[] = {ParameterKind::matrix, ParameterKind::vector};
constexpr const char* kAverageNames[] = {"average.matrix", "average.vector"};
constexpr int64_t kGrain = 1 << 15;
constexpr uint32_t kGradientNoiseSite = 0x676e6f69, kWeightNoiseSite = 0x776e6f69;  // "gnoi", "wnoi"

// x += std n, n standard normal.
void add_noise(Tensor& x, double std, const RandomStream& stream) {
  float* to = x.mutable_data<float>();
  parallel_for(x.count(), 1 << 12, [&](int64_t i, int64_t end) {
    for (; i < end; ++i) to[i] += static_cast<float>(std * stream.normal(static_cast<uint64_t>(i)));
  });
}

// Weights with noise for as long as it lives; then they are as before, bit for bit.
class NoisyWeights {
 public:
  NoisyWeights(Parameters& parameters, double std, const RandomStream& stream) : parameters_(parameters) {
    if (std == 0) return;
    Tensor& matrices = parameters.arena(ParameterKind::matrix).master;
    clean_ = matrices.clone();
    add_noise(matrices, std, stream);
    parameters.refresh_shadows();
  }
  ~NoisyWeights() {
    if (!clean_) return;
    std::memcpy(parameters_.arena(ParameterKind::matrix).master.raw(), clean_.raw(), clean_.bytes());
    parameters_.refresh_shadows();
  }
  NoisyWeights(const NoisyWeights&) = delete;
  NoisyWeights& operator=(const NoisyWeights&) = delete;

 private:
  Parameters& parameters_;
  Tensor clean_;
};

}  // namespace

TrainingState::TrainingState(std::unique_ptr<Transformer> model, const StepConfig& config, DType compute,
                             uint64_t seed, bool recompute)
    : model_(std::move(model)), config_(config), seed_(seed) {
  model_->parameters().prepare_training(compute, seed);
  model_->set_recompute(recompute);
  model_->set_layer_drop(static_cast<float>(config.layer_drop));
  optimizer_ = make_optimizer(config.optimizer, model_->parameters());
  if (config.ema > 0)
    for (int k = 0; k < 2; ++k) average_[k] = model_->parameters().arena(kKinds[k]).master.clone();
}

void TrainingState::accumulate(const std::vector<Batch>& micro_batches, int64_t step, StepResult& result) {
  int64_t targets = 0;
  for (const Batch& b : micro_batches) targets += b.target_count;
  check(targets > 0, "step {}: the batch has no token to predict", step);
  model_->parameters().reset_gradients();
  int64_t first_row = 0;
  for (const Batch& b : micro_batches) {
    Context context;
    context.training = true;
    context.seed = seed_;
    context.step = static_cast<uint64_t>(step);
    context.first_row = first_row;
    const CrossEntropyResult r =
        model_->loss(b, b.targets, context, 1 / static_cast<float>(targets), config_.terms);
    result.loss += r.total / static_cast<double>(targets);
    check(std::isfinite(r.total), "step {}: the loss is not finite ({}): lower the learning rate", step,
          r.total);
    backward(r.loss);
    first_row += b.layout.rows();
    result.tokens += b.layout.rows();
  }
  model_->parameters().complete_gradients();
}

StepResult TrainingState::step(const std::vector<Batch>& micro_batches, int64_t step, int64_t steps) {
  Parameters& parameters = model_->parameters();
  const auto t = static_cast<uint64_t>(step);
  StepResult result;
  {
    const NoisyWeights noise(parameters, config_.weight_noise, {seed_, t, kWeightNoiseSite});
    accumulate(micro_batches, step, result);
  }
  result.gradient_norm = gradient_norm(parameters);
  if (!std::isfinite(result.gradient_norm)) {
    for (const Parameter& p : parameters.all())
      for (const float g : p.leaf->grad.values<float>())
        check(std::isfinite(g), "step {}: the gradient of {} is not finite: lower the learning rate", step,
              p.name);
    fail("step {}: the gradient's norm overflows: lower the learning rate", step);
  }
  result.learning_rate = learning_rate_at(config_.schedule, step, steps);
  double scale =
      config_.clip > 0 && result.gradient_norm > config_.clip ? config_.clip / result.gradient_norm : 1;
  if (config_.gradient_noise > 0) {
    const double std = std::sqrt(config_.gradient_noise / std::pow(1 + static_cast<double>(step), 0.55));
    for (const ParameterKind kind : kKinds)  // the update scales the noise too
      add_noise(parameters.arena(kind).gradient, std / scale,
                {seed_, t, kGradientNoiseSite + static_cast<uint32_t>(kind)});
  }
  optimizer_->update(parameters, step, result.learning_rate, scale);
  if (config_.ema > 0) update_average(step);
  return result;
}

// a <- d a + (1 - d) w, where d grows towards its value while there is little to average.
void TrainingState::update_average(int64_t step) {
  const double t = static_cast<double>(step), d = std::min(config_.ema, (1 + t) / (10 + t));
  const auto keep = static_cast<float>(d), take = static_cast<float>(1 - d);
  for (int k = 0; k < 2; ++k) {
    const float* w = model_->parameters().arena(kKinds[k]).master.data<float>();
    float* a = average_[k].mutable_data<float>();
    parallel_for(average_[k].count(), kGrain, [&](int64_t begin, int64_t end) {
      constexpr int64_t kInCache = 4096;
      for (int64_t i = begin; i < end; i += kInCache) {
        const int64_t n = std::min(kInCache, end - i);
        kernels().scale(n, keep, a + i);
        kernels().axpy(n, take, w + i, a + i);
      }
    });
  }
}

void TrainingState::exchange_average() {
  if (config_.ema == 0) return;
  for (int k = 0; k < 2; ++k) {
    float* w = model_->parameters().arena(kKinds[k]).master.mutable_data<float>();
    std::swap_ranges(w, w + average_[k].count(), average_[k].mutable_data<float>());
  }
  model_->parameters().refresh_shadows();
}

std::vector<std::pair<std::string, Tensor>> TrainingState::state() {
  auto all = optimizer_->state();
  if (config_.ema > 0)
    for (int k = 0; k < 2; ++k) all.emplace_back(kAverageNames[k], average_[k]);
  return all;
}

void TrainingState::expect_finite(int64_t step) {
  for (const Parameter& p : model_->parameters().all())
    check(std::isfinite(kernels().sum_squares(p.master.count(), p.master.data<float>())),
          "step {}: {} is not finite any more: lower the learning rate", step, p.name);
}

}  // namespace qkv
