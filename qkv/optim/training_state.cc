#include "qkv/optim/training_state.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "qkv/autograd/graph.h"
#include "qkv/base/message.h"
#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"
#include "qkv/nn/streams.h"
#include "qkv/optim/arenas.h"
#include "qkv/tensor/release.h"

namespace qkv {
namespace {

constexpr const char* kAverageNames[] = {"average.matrix", "average.vector"};
constexpr uint32_t kGradientNoiseSite = 0x676e6f69, kWeightNoiseSite = 0x776e6f69;  // "gnoi", "wnoi"

double sum_of_squares(Span<const float> x) {
  return kernels().sum_squares(std::ssize(x), x.data());
}

// x += std n, n standard normal.
void add_noise(Tensor& x, double std, const RandomStream& stream) {
  const auto to = x.mutable_values<float>();
  parallel_for(x.count(), 1 << 12, [&](int64_t i, int64_t end) {
    for (; i < end; ++i) to[i] += static_cast<float>(std * stream.normal(static_cast<uint64_t>(i)));
  });
}

// Adds noise to the weights for the lifetime of the object, then restores them bit for bit.
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
    parameters_.arena(ParameterKind::matrix).master.copy(clean_);
    parameters_.refresh_shadows();
  }
  NoisyWeights(const NoisyWeights&) = delete;
  NoisyWeights& operator=(const NoisyWeights&) = delete;

 private:
  Parameters& parameters_;
  Tensor clean_;
};

// True if the name matches the pattern, in which '*' stands for any characters.
bool matches(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t at = star; at <= name.size(); ++at)
    if (matches(rest, name.substr(at))) return true;
  return false;
}

// Number of layers above a parameter, with the head as one; 0: the parameter belongs to the head.
int64_t depth_below_head(const std::string& name, const ModelSpec& spec) {
  const auto below = [&](std::string_view stack, int64_t layers) -> int64_t {
    const std::string prefix = fmt::format("{}.block.", stack);
    if (!name.starts_with(prefix)) return 0;
    return layers - std::stoll(name.substr(prefix.size()));
  };
  const int64_t encoder_layers = spec.encoder_layers > 0 ? spec.encoder_layers : spec.layers;
  if (name.find("embedding.") != std::string::npos && name.find("unembedding.") == std::string::npos)
    return std::max(encoder_layers, spec.layers) + 1;
  return std::max(below("encoder", encoder_layers), below("decoder", spec.layers));
}

}  // namespace

void freeze(Transformer& model, const StepConfig& config) {
  for (const std::string& pattern : config.freeze) {
    bool any = false;
    for (Parameter& p : model.parameters().all())
      if (matches(pattern, p.name)) p.frozen = any = true;
    if (any) continue;
    fail("train.freeze: '{}' is no parameter's name (they are such as '{}')", pattern,
         model.parameters().all().back().name);
  }
  check(std::ranges::any_of(model.parameters().all(), [](const Parameter& p) { return !p.frozen; }),
        "train.freeze: nothing is left to be learnt");
  check(config.adversarial == 0 || !model.parameters().find("embedding.token")->frozen,
        "train.adversarial: the token embedding is frozen, which it would move");
}

namespace {

void set_rates(Transformer& model, const StepConfig& config) {
  for (Parameter& p : model.parameters().all())
    p.rate = static_cast<float>(
        std::pow(config.layer_decay, static_cast<double>(depth_below_head(p.name, model.spec()))));
  for (Parameter& p : model.parameters().all())
    if (!p.learned || p.frozen) p.rate = 0;
}

}  // namespace

TrainingState::TrainingState(std::unique_ptr<Transformer> model, const StepConfig& config,
                             const TrainingOptions& options, Communicator& ranks)
    : model_(std::move(model)), config_(config), options_(options), ranks_(ranks) {
  Parameters& parameters = model_->parameters();
  freeze(*model_, config);
  parameters.prepare_training(options.compute, options.seed);
  set_rates(*model_, config);
  model_->set_recompute(options.recompute);
  model_->set_layer_drop(static_cast<float>(config.layer_drop));
  options_.zero &= !ranks.alone();
  optimizer_ = make_optimizer(config.optimizer, parameters,
                              options_.zero ? std::optional(own(ParameterKind::matrix)) : std::nullopt);
  if (config.ema > 0)
    for (int k = 0; k < 2; ++k) {
      const Tensor& master = parameters.arena(kKinds[k]).master;
      average_[k] = master.view(own(kKinds[k]).begin, {own(kKinds[k]).count()}).clone();
    }
  release_weights();
  check(ranks.size() <= options.shards, "train.shards: {} ranks need at least as many shards", ranks.size());
  check(std::has_single_bit(static_cast<uint64_t>(options.shards)),
        "train.shards: expected a power of two, got {}", options.shards);
  if (options.shards > 1)
    sum_.emplace(
        options.any_order ? ranks.size() : options.shards,
        std::vector<Tensor>{parameters.arena(kKinds[0]).gradient, parameters.arena(kKinds[1]).gradient},
        ranks);
}

double TrainingState::pass(const Batch& b, size_t index, const Context& given, int64_t targets) {
  Context context = given;
  if (!b.continues.empty()) {
    const auto [states, is_new] = memory_.try_emplace(index);
    if (is_new) states->second = model_->make_segment_states(b.windows.back() + 1);
    load_streams(states->second, b);
    context.segment_states = &states->second;
  }
  const CrossEntropyResult r =
      model_->loss(b, b.targets, context, 1 / static_cast<float>(targets), config_.terms);
  if (!sum_)
    check(std::isfinite(r.total), "step {}: the loss is not finite ({}): lower the learning rate",
          context.step, r.total);
  backward(r.loss);
  if (!b.continues.empty()) store_streams(memory_.at(index), b);
  return r.total / static_cast<double>(targets);
}

void TrainingState::accumulate(const std::vector<Batch>& micro_batches, int64_t step, StepResult& result,
                               bool observed) {
  const int64_t passes = std::ssize(micro_batches);
  check(!sum_ || passes == options_.shards, "step {}: expected {} shards, got {}", step, options_.shards,
        passes);
  const ShardRun mine = sum_ ? shards_of(options_.shards, ranks_.rank(), ranks_.size()) : ShardRun{0, passes};
  int64_t targets = 0;
  for (const Batch& b : micro_batches) targets += b.target_count;
  check(targets > 0, "step {}: the batch has no token to predict", step);
  Context context;
  context.training = true;
  context.observed = observed;
  context.seed = options_.seed;
  context.step = static_cast<uint64_t>(step);
  std::vector<double> losses;
  std::vector<Tensor> before;
  for (int64_t i = 0; i < passes; ++i) {
    const Batch& b = micro_batches[static_cast<size_t>(i)];
    if (i >= mine.first && i < mine.end) {
      const bool begins = sum_ && (!options_.any_order || i == mine.first),
                 ends = sum_ && (!options_.any_order || i + 1 == mine.end);
      if (begins) {
        model_->parameters().reset_gradients();
        before = averages();
      }
      losses.push_back(pass(b, static_cast<size_t>(i), context, targets));
      if (ends) {
        complete_leaf(before);
        sum_->add(options_.any_order ? ranks_.rank() : i);
      }
    }
    context.first_row += b.layout.rows();
    result.tokens += b.layout.rows();
  }
  if (!sum_) {
    for (const double loss : losses) result.loss += loss;
    return;
  }
  result.loss = sum_of_shards(options_.shards, losses, ranks_);
  check(std::isfinite(result.loss), "step {}: the loss is not finite ({}): lower the learning rate", step,
        result.loss);
  sum_->finish({!options_.zero, true});
  for (Parameter& p : model_->parameters().all())
    if (p.leaf) p.leaf->fresh = false;
  const auto leaves = static_cast<float>(options_.any_order ? ranks_.size() : options_.shards);
  for (Parameter* p : moving_averages()) {
    const auto to = p->value.mutable_values<float>();
    const auto moved = p->leaf->grad.values<float>().first(std::ssize(to));
    for (int64_t c = 0; c < std::ssize(to); ++c) to[c] += moved[c] / leaves;
  }
}

// Those of batch norms: they are vectors, have no gradient, and each pass moves them.
std::vector<Parameter*> TrainingState::moving_averages() {
  std::vector<Parameter*> all;
  for (Parameter& p : model_->parameters().all())
    if (p.averaged && p.leaf) all.push_back(&p);
  return all;
}

std::vector<Tensor> TrainingState::averages() {
  std::vector<Tensor> all;
  for (const Parameter* p : moving_averages()) all.push_back(p->value.clone());
  return all;
}

void TrainingState::complete_leaf(const std::vector<Tensor>& averages_before) {
  for (Parameter& p : model_->parameters().all())
    if (p.leaf && p.leaf->fresh) p.leaf->grad.set_zero();
  const std::vector<Parameter*> averages = moving_averages();
  for (size_t i = 0; i < averages.size(); ++i) {
    const auto before = averages_before[i].values<float>();
    const auto now = averages[i]->value.mutable_values<float>().first(std::ssize(before));
    const auto moved = averages[i]->leaf->grad.mutable_values<float>().first(std::ssize(before));
    for (int64_t c = 0; c < std::ssize(before); ++c) moved[c] = now[c] - before[c];
    now.copy(before);
  }
}

void TrainingState::accumulate_adversarial(const std::vector<Batch>& micro_batches, int64_t step) {
  Parameters& parameters = model_->parameters();
  Parameter& embedding = *parameters.find("embedding.token");
  const double norm = std::sqrt(sum_of_squares(embedding.leaf->grad.values<float>()));
  if (!(norm > 0)) return;
  const Tensor before = embedding.master.clone();
  const auto to = embedding.master.mutable_values<float>();
  const auto grad = embedding.leaf->grad.values<float>().first(std::ssize(to));
  kernels().axpy(std::ssize(to), static_cast<float>(config_.adversarial / norm), grad.data(), to.data());
  parameters.refresh_shadows();
  StepResult ignored;
  if (sum_) {  // which replaces the gradients
    std::vector<Tensor> plain;
    for (const ParameterKind kind : kKinds) plain.push_back(parameters.arena(kind).gradient.clone());
    accumulate(micro_batches, step, ignored, false);
    for (size_t k = 0; k < 2; ++k) {
      const auto gradient = parameters.arena(kKinds[k]).gradient.mutable_values<float>();
      kernels().axpy(std::ssize(gradient), 1, plain[k].values<float>().data(), gradient.data());
    }
  } else {
    accumulate(micro_batches, step, ignored, false);
  }
  embedding.master.copy(before);
  parameters.refresh_shadows();
}

StepResult TrainingState::step(const std::vector<Batch>& micro_batches, int64_t step, int64_t steps) {
  Parameters& parameters = model_->parameters();
  const auto t = static_cast<uint64_t>(step);
  StepResult result;
  {
    const NoisyWeights noise(parameters, config_.weight_noise, {options_.seed, t, kWeightNoiseSite});
    parameters.reset_gradients();
    accumulate(micro_batches, step, result, true);
    if (config_.adversarial > 0) accumulate_adversarial(micro_batches, step);
    model_->update_buffers();
    parameters.complete_gradients();
  }
  result.gradient_norm = options_.zero ? gradient_norm(parameters, ranks_) : gradient_norm(parameters);
  if (!std::isfinite(result.gradient_norm)) {
    check(!options_.zero, "step {}: the gradient is not finite: lower the learning rate", step);
    for (const Parameter& p : parameters.all())
      for (const float g : p.leaf ? p.leaf->grad.values<float>() : Span<const float>())
        check(std::isfinite(g), "step {}: the gradient of {} is not finite: lower the learning rate", step,
              p.name);
    fail("step {}: the gradient's norm overflows: lower the learning rate", step);
  }
  result.learning_rate = learning_rate_at(config_.schedule, step, steps);
  double scale =
      config_.clip > 0 && result.gradient_norm > config_.clip ? config_.clip / result.gradient_norm : 1;
  if (config_.gradient_noise > 0) {
    const double std = std::sqrt(config_.gradient_noise / std::pow(1 + static_cast<double>(step), 0.55));
    for (const ParameterKind kind : kKinds)  // the update scales the noise, too
      add_noise(parameters.arena(kind).gradient, std / scale,
                {options_.seed, t, kGradientNoiseSite + static_cast<uint32_t>(kind)});
  }
  optimizer_->update(parameters, step, result.learning_rate, scale);
  if (options_.zero) share_weights();
  if (config_.ema > 0) update_average(step);
  return result;
}

// a <- d a + (1 - d) w, where d grows towards config_.ema in the first steps.
void TrainingState::update_average(int64_t step) {
  const double t = static_cast<double>(step), d = std::min(config_.ema, (1 + t) / (10 + t));
  const auto keep = static_cast<float>(d), take = static_cast<float>(1 - d);
  for (int k = 0; k < 2; ++k) {
    const auto w = model_->parameters().arena(kKinds[k]).master.values<float>().subspan(own(kKinds[k]).begin,
                                                                                        average_[k].count());
    const auto a = average_[k].mutable_values<float>();
    parallel_for(average_[k].count(), kGrain, [&](int64_t begin, int64_t end) {
      constexpr int64_t kInCache = 4096;
      for (int64_t i = begin; i < end; i += kInCache) {
        const int64_t n = std::min(kInCache, end - i);
        float* mean = a.subspan(i, n).data();
        kernels().scale(n, keep, mean);
        kernels().axpy(n, take, w.subspan(i, n).data(), mean);
      }
    });
  }
}

void TrainingState::exchange_average() {
  if (config_.ema == 0) return;
  for (int k = 0; k < 2; ++k) {
    const auto w = model_->parameters().arena(kKinds[k]).master.mutable_values<float>().subspan(
        own(kKinds[k]).begin, average_[k].count());
    std::ranges::swap_ranges(w, average_[k].mutable_values<float>());
  }
  model_->parameters().refresh_shadows();  // stale in the parts of other ranks, which send theirs
  if (options_.zero) share_weights();
}

Part TrainingState::own(ParameterKind kind) const {
  const int64_t n = model_->parameters().arena(kind).master.count();
  if (!options_.zero || kind != ParameterKind::matrix) return {0, n};
  return part_of(n, ranks_.rank(), ranks_.size());
}

bool TrainingState::weights_divided() const {
  return options_.zero && options_.compute != DType::f32;
}

void TrainingState::share_weights() {
  Arena& matrices = model_->parameters().arena(ParameterKind::matrix);
  gather_parts(matrices.shadow.defined() ? matrices.shadow : matrices.master, ranks_);
}

void TrainingState::collect_weights() {
  if (weights_divided()) collect_parts(model_->parameters().arena(ParameterKind::matrix).master, ranks_);
}

void TrainingState::release_weights() {
  if (!weights_divided()) return;
  Tensor& master = model_->parameters().arena(ParameterKind::matrix).master;
  const Part mine = own(ParameterKind::matrix);
  release_memory(master, 0, mine.begin);
  release_memory(master, mine.end, master.count());
}

NamedTensors TrainingState::state() {
  auto all = optimizer_->state();
  if (config_.ema > 0)
    for (int k = 0; k < 2; ++k) all.emplace_back(kAverageNames[k], average_[k]);
  return all;
}

bool TrainingState::is_divided(const std::string& name) const {
  return options_.zero && (name.starts_with("matrix.") || name == kAverageNames[0]);
}

Shape TrainingState::whole_shape(const std::string& name, const Tensor& mine) const {
  if (!is_divided(name)) return mine.shape();
  return {model_->parameters().arena(ParameterKind::matrix).master.count()};
}

void TrainingState::collect(const std::string& name, const Tensor& mine,
                            const std::function<void(std::span<const std::byte>)>& take) const {
  if (is_divided(name)) return collect_pieces(mine, whole_shape(name, mine)[0], ranks_, take);
  const auto bytes = mine.value_bytes();
  if (ranks_.leads()) take({bytes.data(), bytes.size()});
}

Tensor TrainingState::own_part(const std::string& name, const Tensor& whole) const {
  if (!is_divided(name) || whole.shape() != whole_shape(name, whole)) return whole;
  const Part mine = own(ParameterKind::matrix);
  return whole.slice_rows(mine.begin, mine.end);
}

namespace {

std::string memory_name(size_t micro_batch, size_t layer, size_t part) {
  return fmt::format("memory.{}.{}.{}", micro_batch, layer, part == 0 ? "lengths" : "rows");
}

// Tensors as a message.
std::string packed(const NamedTensors& tensors) {
  std::string out;
  for (const auto& [name, tensor] : tensors) {
    put_text(out, name);
    put(out, tensor.dtype());
    put(out, tensor.shape());
    const auto bytes = tensor.value_bytes();
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return out;
}

void unpack(std::string_view from, NamedTensors& to) {
  while (!from.empty()) {
    std::string name = take_text(from);
    const auto type = take<DType>(from);
    Tensor tensor = Tensor::empty(take<Shape>(from), type);
    const auto bytes = tensor.mutable_value_bytes();
    std::memcpy(bytes.data(), take_bytes(from, bytes.size()).data(), bytes.size());
    to.emplace_back(std::move(name), std::move(tensor));
  }
}

}  // namespace

NamedTensors TrainingState::memory() const {
  NamedTensors mine;
  for (const auto& [i, states] : memory_)
    for (size_t l = 0; l < states.all().size(); ++l) {
      const std::vector<Tensor> parts = states.all()[l]->save();
      for (size_t part = 0; part < parts.size(); ++part)
        mine.emplace_back(memory_name(i, l, part), parts[part]);
    }
  if (ranks_.alone()) return mine;
  NamedTensors all;
  for (const std::string& rank : ranks_.collect(packed(mine))) unpack(rank, all);
  return all;
}

void TrainingState::load_memory(const std::map<std::string, Tensor>& saved) {
  memory_.clear();
  const ShardRun mine = shards_of(options_.shards, ranks_.rank(), ranks_.size());
  for (size_t i = 0;; ++i) {
    const auto first = saved.find(memory_name(i, 0, 0));
    if (first == saved.end()) return;
    if (sum_ && (std::cmp_less(i, mine.first) || std::cmp_greater_equal(i, mine.end))) continue;
    SegmentStates& states = memory_[i] = model_->make_segment_states(first->second.count());
    for (size_t l = 0; l < states.all().size(); ++l) {
      std::vector<Tensor> parts;
      for (size_t part = 0; part < 2; ++part)
        if (const auto it = saved.find(memory_name(i, l, part)); it != saved.end())
          parts.push_back(it->second);
      check(!parts.empty(), "'{}' is missing", memory_name(i, l, 0));
      states.all()[l]->load(parts);
    }
  }
}

void TrainingState::expect_finite(int64_t step) {
  for (const Parameter& p : model_->parameters().all())
    check(p.packed.defined() || std::isfinite(sum_of_squares(p.master.values<float>())),
          "step {}: {} is not finite any more: lower the learning rate", step, p.name);
}

}  // namespace qkv
