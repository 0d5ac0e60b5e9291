#include "qkv/train/run/plan.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "qkv/base/machine.h"
#include "qkv/base/parallel.h"
#include "qkv/base/progress.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/model_dir.h"

namespace qkv {
namespace {

constexpr int64_t kProgram = 100 << 20;  // code, oneDNN's generated code and scratch memory

// The number of columns of a block's activations, per token.
struct Columns {
  MixerCost mixer, cross;
  int64_t width, hidden, normed, affinities;

  Columns(const ModelSpec& m, bool causal)
      : mixer(m.mixer.cost(m, causal)),
        cross(cross_attention_cost(m)),
        width(m.width),
        hidden(m.experts.count > 0
                   ? std::max(m.hidden, m.experts.chosen * m.experts.hidden + m.experts.shared_hidden)
                   : m.hidden * m.hidden_layers),
        normed((m.norm_placement == NormPlacement::sandwich || m.norm_placement == NormPlacement::branch
                    ? 2 * width
                    : 0) +
               (m.experts.count > 0 ? (2 * m.experts.chosen + 1) * width : 0) +
               (m.channel_mix == ChannelMix::none    ? 0
                : m.channel_mix == ChannelMix::rwkv4 ? 6
                                                     : 2) *
                   width +
               // The branch of a block's own input, and the inputs of this layer as all layers' are made.
               (m.layer_input_width > 0 ? 3 * width + 10 * m.layer_input_width : 0)),
        affinities(m.experts.count) {}

  // Bytes kept for the backward pass: two sums and their norms; the mixer's activations; the inputs and
  // outputs of the activation function; norms of branches; inputs and outputs of experts. In f32: two means
  // and deviations, affinities.
  int64_t kept(int64_t element) const {
    return (4 * width + mixer.projected + mixer.out + 2 * hidden + normed) * element +
           (4 + mixer.kept_f32 + affinities) * 4;
  }
};

// The columns of each layer of a stack.
std::vector<Columns> columns_of_layers(const ModelSpec& m, int64_t layers, bool causal) {
  std::map<std::string, Columns> of_kind;
  for (const std::string& kind : m.kinds_in_use(layers))
    of_kind.emplace(kind, Columns(m.with_kind(kind), causal));
  std::vector<Columns> out;
  for (int64_t l = 0; l < layers; ++l) out.push_back(of_kind.at(m.kind_of(l)));
  return out;
}

// Bytes of kept activations of a recurrent stack, per token and layer: inputs, h by time and in order, a
// GRU's reset h; in f32 the gates and the states.
int64_t kept_by_recurrence(Cell cell, int64_t width, int64_t element) {
  const int64_t h = cell == Cell::gru ? 4 : 3;
  return width * (h * element + (gates_of(cell) + state_parts(cell)) * 4);
}
// Bytes that a recurrent decoder keeps besides its layers, per token: contexts, next to h, through the
// readout; with additive attention also the inputs of each step.
int64_t kept_by_source_attention(const ModelSpec& m, int64_t element) {
  const RecurrenceSpec& r = m.recurrence;
  if (r.attention == SourceAttention::none) return 0;
  const int64_t readout = 5 * m.width * element;
  if (r.attention != SourceAttention::additive) return readout;
  return readout + m.width * (4 * element + state_parts(r.decoder) * 4);
}

// Rows of a micro-batch in each stack; sources and targets share a batch of pairs.
int64_t rows_of(const TrainConfig& config, Objective objective, int64_t batch) {
  if (objective == Objective::next_token) return batch * config.window_length();
  if (config.model.architecture == Architecture::encoder_decoder) return config.tokens_of_pass() / 2;
  // A permutation model reads the predicted tokens twice.
  const double twice = objective == Objective::permutation ? config.masking.rate : 0;
  return static_cast<int64_t>(static_cast<double>(config.tokens_of_pass()) * (1 + twice));
}
int64_t rows_of(const TrainConfig& config, int64_t batch) {
  if (config.mix.empty()) return rows_of(config, config.objective, batch);
  int64_t most = 0;
  for (const MixedSet& set : config.mix) most = std::max(most, rows_of(config, set.objective, batch));
  return most;
}

// The model of the run without weights, with frozen parameters marked.
std::unique_ptr<Transformer> planned(const TrainConfig& config) {
  ModelSpec spec = config.model;
  if (spec.lora.any()) spec.lora.adapters = adapters_of(spec);
  auto model = std::make_unique<Transformer>(spec);
  freeze(*model, config.step);
  if (!spec.lora.any()) return model;
  Transformer base(load_spec(spec.lora.base));
  for (Parameter& p : model->parameters().all())
    if (const Parameter* q = base.parameters().find(p.name)) p.frozen = q->shape == p.shape;
  return model;
}

// Bytes of the frozen parameters that stay as they are in the files of the model that the run begins with.
std::map<std::string, int64_t> bytes_left_packed_in(const TrainConfig& config, const Transformer& model) {
  const auto is_frozen = [](const Parameter& p) { return p.frozen; };
  if (config.model.lora.base.empty() && config.from.empty()) return {};
  if (std::ranges::none_of(model.parameters().all(), is_frozen)) return {};
  const std::string dir = config.from.empty() ? config.model.lora.base : resolve_model_dir(config.from);
  return bytes_left_packed(dir, DType::f32);
}

constexpr std::string_view kBlock = ".block.";

// The index of the block that a parameter belongs to.
std::optional<int64_t> block_of(const std::string& name) {
  const size_t at = name.find(kBlock);
  return at == std::string::npos ? std::nullopt
                                 : std::optional<int64_t>(std::stoll(name.substr(at + kBlock.size())));
}

// The same parameter's name in another block.
std::string in_block(const std::string& name, int64_t block) {
  const size_t at = name.find(kBlock);
  if (at == std::string::npos) return name;
  const size_t number = at + kBlock.size();
  return fmt::format("{}{}{}", name.substr(0, number), block, name.substr(name.find('.', number)));
}

// Number of blocks at the bottom of a single stack that the backward pass does not reach, because they have
// nothing to train.
int64_t unreached_blocks(const Transformer& model) {
  const ModelSpec& s = model.spec();
  if (s.architecture == Architecture::encoder_decoder || s.layer_groups > 0) return 0;
  const std::string stack = s.architecture == Architecture::encoder ? "encoder" : "decoder";
  const auto learned_in = [&](std::string_view prefix) {
    return std::ranges::any_of(model.parameters().all(),
                               [&](const Parameter& p) { return !p.frozen && p.name.starts_with(prefix); });
  };
  if (learned_in("embedding.") || learned_in(stack + ".relative") || learned_in(stack + ".distance") ||
      learned_in(stack + ".kind."))
    return 0;
  int64_t blocks = 0;
  while (blocks < s.layers && !learned_in(fmt::format("{}.block.{}.", stack, blocks))) ++blocks;
  return blocks;
}

}  // namespace

std::vector<std::pair<std::string, int64_t>> MemoryPlan::parts() const {
  return {{"weights", weights},     {"bf16 copies", shadows}, {"gradients", gradients},
          {"optimizer", optimizer}, {"average", average},     {"activations", activations},
          {"work", work},           {"program", program}};
}

std::string ParameterCount::text() const {
  return (trainable == all ? human_count(all) : grouped_count(all)) + " parameters" + trainable_text();
}

std::string ParameterCount::trainable_text() const {
  if (trainable == all) return "";
  const double percent = 100 * static_cast<double>(trainable) / static_cast<double>(all);
  return fmt::format(", {} of them trainable ({}%)", grouped_count(trainable),
                     percent < 1 ? fmt::format("{:.2g}", percent) : fmt::format("{:.1f}", percent));
}

ParameterCount count_parameters(const TrainConfig& config) {
  ParameterCount count;
  const std::unique_ptr<Transformer> model = planned(config);  // outlives the loop
  for (const Parameter& p : model->parameters().all()) {
    count.all += p.shape.count();
    if (!p.frozen) count.trainable += p.shape.count();
  }
  return count;
}

namespace {

// The part of a plan that does not depend on the batch.
MemoryPlan plan_of_parameters(const TrainConfig& config, Transformer& model) {
  const bool bf16 = config.compute() == DType::bf16;
  const std::map<std::string, int64_t> packed = bytes_left_packed_in(config, model);
  MemoryPlan plan;
  for (const Parameter& p : model.parameters().all()) {
    const int64_t n = p.shape.count();
    const auto as_it_is = packed.find(p.name);
    if (p.frozen && as_it_is != packed.end()) {
      plan.weights += as_it_is->second;
      continue;
    }
    plan.weights += 4 * n;
    if (bf16 && p.kind == ParameterKind::matrix) plan.shadows += 2 * n;
    if (p.frozen) continue;
    plan.gradients += 4 * n;
    if (config.step.weight_noise > 0 && p.kind == ParameterKind::matrix) plan.average += 4 * n;
    if (config.step.ema > 0) plan.average += 4 * n;
  }
  plan.optimizer = 4 * optimizer_state_size(config.step.optimizer, model.parameters());
  plan.program = kProgram;
  return plan;
}

// Plans the memory of one run for many sizes of its batches.
class MemoryPlanner {
 public:
  explicit MemoryPlanner(const TrainConfig& config) {
    const std::unique_ptr<Transformer> model = planned(config);
    parameters_ = plan_of_parameters(config, *model);
    unreached_ = unreached_blocks(*model);
  }
  // `config` may differ from the constructor's in the sizes of batches alone.
  MemoryPlan plan(const TrainConfig& config, int64_t batch, int ranks = 1) const;

 private:
  MemoryPlan parameters_;
  int64_t unreached_;  // blocks without a backward pass
};

MemoryPlan MemoryPlanner::plan(const TrainConfig& config, int64_t batch, int ranks) const {
  const ModelSpec& m = config.model;
  const bool bf16 = config.compute() == DType::bf16;
  const bool pairs = m.architecture == Architecture::encoder_decoder;
  const int64_t element = bf16 ? 2 : 4, rows = rows_of(config, batch);
  MemoryPlan plan = parameters_;
  if (config.zero) {  // vectors, which all ranks keep, are few
    plan.optimizer /= ranks;
    plan.average /= ranks;
    if (bf16) plan.weights -= plan.gradients - plan.gradients / ranks;  // frozen ones stay whole
  }
  if (config.shard_order == "tree") {
    int64_t kept = 0;
    for (int r = 0; r < ranks; ++r) kept = std::max(kept, kept_gradients(shards_of(config.shards, r, ranks)));
    plan.gradients *= 1 + kept + (config.step.adversarial > 0 && config.shards > 1 ? 1 : 0);
  }
  // The columns of the decoder or the only stack, and of the encoder next to a decoder.
  const std::vector<Columns> ours = columns_of_layers(m, m.layers, m.causal()),
                             encoders = columns_of_layers(m.encoder_spec(), m.encoder_layers, false);
  const auto sum_of = [](std::span<const Columns> layers, const auto& f) {
    int64_t sum = 0;
    for (const Columns& c : layers) sum += f(c);
    return sum;
  };
  const auto most_of = [&](const auto& f) {
    int64_t most = 0;
    for (const std::vector<Columns>* stack : {&ours, &encoders})
      for (const Columns& c : *stack) most = std::max(most, f(c));
    return most;
  };
  // The model also reads the rows in memory: joined and in order, and projected. Memory is kept twice while
  // it changes.
  const int64_t remembered =
      batch * config.passes() * std::min(m.memory, config.window_length() * config.steps);
  plan.activations =
      remembered * m.layers * 2 * m.width * element +
      (m.memory > 0
           ? (remembered / config.passes() + rows) *
                 sum_of(ours, [](const Columns& c) { return 3 * c.width + c.mixer.projected + c.normed; }) *
                 element
           : 0);
  const auto between = [&](const Columns& of) {  // x and the branch to be added
    return 2 * of.width * element;
  };
  const auto kept = [&](const Columns& c) { return c.kept(element); };
  // Cross-attention adds a sum and its norm, q, k, v and the heads' output.
  const int64_t cross = pairs ? sum_of(ours,
                                       [&](const Columns& c) {
                                         return (2 * c.width + c.cross.projected + c.cross.out) * element +
                                                (2 + c.cross.kept_f32) * 4;
                                       })
                              : 0;
  const auto reached = std::span(ours).subspan(static_cast<size_t>(unreached_));
  int64_t blocks = config.recompute ? sum_of(reached, between) + sum_of(encoders, between) + most_of(kept)
                                    : sum_of(reached, kept) + sum_of(encoders, kept) + cross;
  if (m.recurrence.any()) {
    const auto stack = [&](Cell cell, int64_t n) {
      return n * (cell == Cell::none ? Columns(m, m.causal()).kept(element)
                                     : kept_by_recurrence(cell, m.width, element));
    };
    blocks = stack(m.recurrence.encoder, m.encoder_layers) + stack(m.recurrence.decoder, m.layers) +
             (m.recurrence.decoder == Cell::none ? cross : kept_by_source_attention(m, element));
  }
  const int64_t ends = 3 * m.width * element + 8 + 16;  // the final norm; ids, targets, positions, losses
  plan.activations += rows * (blocks + ends);
  const int64_t stride = (m.vocab_size + 63) / 64 * 64;
  const int64_t logits = std::min(rows, cross_entropy_rows(m.vocab_size)) * stride *
                         (bf16              ? 6
                          : m.logit_cap > 0 ? 8
                                            : 4);
  // The backward pass of a block frees activations as gradients appear.
  const auto moving = [&](const Columns& of) {
    return rows * ((2 * of.width + 2 * of.hidden) * element + 4 * of.mixer.again_f32);
  };
  // Unembeddings scaled to length 1, and their gradient.
  const int64_t unit = m.embedding_unit ? m.vocab_size * m.width * (2 * element + 4) : 0;
  plan.work = std::max(logits + rows * m.width * element, most_of(moving)) + unit;
  return plan;
}

}  // namespace

MemoryPlan memory_plan(const TrainConfig& config, int64_t batch, int ranks) {
  return MemoryPlanner(config).plan(config, batch, ranks);
}

int64_t memory_limit(const TrainConfig& config) {
  if (config.memory_gb > 0) return static_cast<int64_t>(config.memory_gb * 1e9);
  const int64_t free = available_memory();
  return free == 0 ? std::numeric_limits<int64_t>::max() : free / 10 * 9;
}

namespace {

// The largest number from 1 to `most` for which `fits` holds; 0: none. REQUIRES: if `fits` holds for n, it
// holds for all smaller numbers.
template <typename F>
int64_t largest_that(int64_t most, const F& fits) {
  if (!fits(1)) return 0;
  if (fits(most)) return most;
  int64_t least = 1;
  while (most - least > 1) {
    const int64_t middle = least + (most - least) / 2;
    (fits(middle) ? least : most) = middle;
  }
  return least;
}

}  // namespace

int64_t largest_batch(const TrainConfig& config, int64_t limit, int ranks) {
  const MemoryPlanner planner(config);
  return largest_that(std::numeric_limits<int32_t>::max() / config.window_length(),  // limit of a batch
                      [&](int64_t batch) { return planner.plan(config, batch, ranks).total() <= limit; });
}

int64_t largest_batch_tokens(const TrainConfig& config, int64_t batch, int64_t limit) {
  const MemoryPlanner planner(config);
  TrainConfig other = config;
  const int64_t pairs = largest_that(int64_t{1} << 23, [&](int64_t half) {
    other.batch_tokens = 2 * half;  // source and target share them
    return planner.plan(other, batch).total() <= limit;
  });
  return 2 * pairs;
}

double flops_per_step(const TrainConfig& config, int64_t batch) {
  const ModelSpec& m = config.model;
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  const bool pairs = m.architecture == Architecture::encoder_decoder;
  const double rows = d(rows_of(config, batch) * config.passes());
  const auto block = [&](const Columns& of) {
    return d(of.mixer.multiplications) + 2 * d(of.width) * d(of.hidden) +
           3 * d(of.width) * d(m.layer_input_width);
  };
  // Mean number of keys that a query sees; taken as 0 for sequences, which are short.
  const double seen = config.objective == Objective::next_token ? (d(config.window_length()) + 1) / 2 : 0;
  double multiplications = 0, scores = 0;  // per row
  const std::vector<Columns> ours = columns_of_layers(m, m.layers, m.causal());
  for (int64_t l = 0; l < m.layers; ++l) {
    const Columns& c = ours[static_cast<size_t>(l)];
    multiplications += block(c) + seen * d(c.mixer.per_key);
    if (pairs) multiplications += d(c.cross.multiplications);
    scores += seen * d(c.mixer.scores);
  }
  for (const Columns& e : columns_of_layers(m.encoder_spec(), m.encoder_layers, false))
    multiplications += block(e);
  const double forward = 2 * rows * multiplications;
  const double unembedding = 2 * rows * d(m.width) * d(m.vocab_size);
  // The backward pass of attention computes the scores again.
  const double scores_again = 2 * rows * scores;
  return 3 * (forward + unembedding) + scores_again + (config.recompute ? forward : 0);
}

double measure_step_seconds(const TrainConfig& config, int64_t batch) {
  constexpr int64_t kTokens = 2048;  // enough to measure a step, and still quick
  const int64_t context = config.window_length();
  const int64_t windows = std::clamp<int64_t>(kTokens / context, 1, batch);
  TokenStream stream;
  std::vector<int32_t> tokens(context + 1);
  for (int64_t i = 0; i <= context; ++i)
    tokens[i] = static_cast<int32_t>(RandomStream{1, 0, 0}.below(i, config.model.vocab_size));
  stream.append(tokens);
  const Batch one = cut_windows(stream, std::vector<int64_t>(windows, 0), context);

  const std::unique_ptr<Transformer> whole = planned(config);
  struct Seconds {
    double micro_batch, rest;
  };
  // Times a model with this many layers, each with the adapters and frozen parameters of `layer`.
  const auto measured = [&](int64_t layers, ModelSpec spec, int64_t layer) {
    spec.layers = layers;
    spec.layer_groups = 0;
    spec.lora.adapters.clear();
    for (AdapterSpec adapter : whole->spec().lora.adapters) {
      const std::optional<int64_t> block = block_of(adapter.parameter);
      if (!block) spec.lora.adapters.push_back(adapter);
      for (int64_t l = 0; block == layer && l < layers; ++l) {
        adapter.parameter = in_block(adapter.parameter, l);
        spec.lora.adapters.push_back(adapter);
      }
    }
    auto model = std::make_unique<Transformer>(spec);
    // A step needs something to train: if all of this layer is frozen, unfreeze everything.
    bool any_learned = false;
    for (Parameter& p : model->parameters().all()) {
      const Parameter* as = whole->parameters().find(in_block(p.name, layer));
      p.frozen = as != nullptr && as->frozen;
      any_learned |= !p.frozen;
    }
    for (Parameter& p : model->parameters().all()) p.frozen &= any_learned;
    StepConfig step_config = config.step;
    step_config.freeze.clear();
    TrainingState training(std::move(model), step_config,
                           {.compute = config.compute(), .seed = config.seed, .recompute = config.recompute});
    int64_t step = 0;
    const auto best_of = [&](const std::vector<Batch>& batches) {
      double best = std::numeric_limits<double>::infinity();
      for (int i = 0; i < 4; ++i) {  // the first also pays for allocations and generated code
        const auto start = std::chrono::steady_clock::now();
        training.step(batches, ++step, config.steps);
        best =
            std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
      return best;
    };
    const double single = best_of({one}), twice = best_of({one, one});
    const double micro_batch = std::max(0.0, twice - single);
    return Seconds{micro_batch, std::max(0.0, single - micro_batch)};
  };
  const auto at_all_layers = [&](double a, double b) {
    return a + std::max(0.0, b - a) * static_cast<double>(config.model.layers - 1);
  };
  const double scale =
      static_cast<double>(batch) / static_cast<double>(windows) * static_cast<double>(config.passes());
  const auto seconds = [&](const ModelSpec& spec, int64_t layer) {  // if all layers were like this one
    const Seconds first = measured(1, spec, layer), second = measured(2, spec, layer);
    return at_all_layers(first.rest, second.rest) +
           scale * at_all_layers(first.micro_batch, second.micro_batch);
  };
  std::set<std::optional<int64_t>> learned;  // blocks with trainable parameters
  for (const Parameter& p : whole->parameters().all())
    if (!p.frozen) learned.insert(block_of(p.name));
  // Groups of similar layers: by kind, whether they have experts and whether they train.
  std::map<std::tuple<std::string, bool, bool>, std::vector<int64_t>> alike;
  for (int64_t l = 0; l < config.model.layers; ++l) {
    const int64_t owner = config.model.owner_of(l, config.model.layers);
    alike[{config.model.kind_of(l), config.model.block(l).experts.in_layer(l), learned.contains(owner)}]
        .push_back(owner);
  }
  double sum = 0;
  for (const auto& [which, layers] : alike) {
    ModelSpec spec = config.model.with_kind(std::get<0>(which));
    spec.attention.reused_keys = false;  // alone, there is no layer whose keys it could reuse
    spec.experts.first = 0;
    spec.experts.every = 1;
    if (!std::get<1>(which)) spec.experts = {};
    sum += seconds(spec, layers[0]) * static_cast<double>(layers.size()) /
           static_cast<double>(config.model.layers);
  }
  return sum;
}

double measure_step_seconds(const TrainConfig& config, Task& task, int64_t batch) {
  const std::unique_ptr<Transformer> marked = planned(config);
  auto model = std::make_unique<Transformer>(config.model);
  for (Parameter& p : model->parameters().all()) p.frozen = marked->parameters().find(p.name)->frozen;
  StepConfig step_config = config.step;
  step_config.freeze.clear();
  TrainingState training(std::move(model), step_config,
                         {.compute = config.compute(), .seed = config.seed, .recompute = config.recompute});
  constexpr int64_t kSteps = 4;  // the first also pays for allocations and generated code
  double total = 0;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const std::vector<Batch> batches = task.batches(step, batch);
    const auto start = std::chrono::steady_clock::now();
    training.step(batches, step, std::max(config.steps, kSteps));
    if (step > 1) total += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return total / (kSteps - 1);  // the mean, because batches differ
}

}  // namespace qkv
