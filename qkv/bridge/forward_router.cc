#include "qkv/bridge/forward_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

// A router's logits [N, E] by its layer.
using Routers = std::map<int64_t, Tensor>;

// Collects the logits of all routers of a stack. `real`: tells padding, which is among the tokens; empty:
// there is none.
class RouterProbe : public Probe {
 public:
  RouterProbe(const ModelSpec& spec, std::string stack) : spec_(spec), stack_(std::move(stack) + ".block.") {}
  bool wants(std::string_view name) const override {
    if (!name.starts_with(stack_)) return false;
    return name.ends_with(".feed_forward.router") ||
           (!real.empty() && (is_of_windows(name) || is_of_states(name)));
  }
  // Under Hugging Face's masks a token that sees no other gives all the same weight, padding included. If
  // heads have sinks, these have it all.
  void visit_head(std::string_view /*name*/, int64_t /*sequence*/, int64_t /*head*/,
                  Tensor& probabilities) override {
    for (int64_t q = 0; q < probabilities.rows(); ++q) {
      const auto row = probabilities.mutable_row<float>(q);
      if (std::ranges::all_of(row, [](float p) { return p == 0; }))
        std::ranges::fill(row, 1 / static_cast<float>(row.size()));
    }
  }
  // Hugging Face's states read zeros for padding, of which nothing comes.
  void visit(std::string_view name, Tensor& value) override {
    if (!name.ends_with(".router")) {
      Tensor kept = convert(value, DType::f32).clone();
      for (int64_t i = 0; i < value.rows(); ++i)
        if (!real[static_cast<size_t>(i)]) std::ranges::fill(kept.mutable_row<float>(i), 0.0F);
      value = convert(kept, value.dtype());
      return;
    }
    found[std::stoll(std::string(name.substr(stack_.size())))] = value;
  }
  Routers found;
  std::vector<bool> real = {};

 private:
  bool is_of_states(std::string_view name) const {
    const std::string_view rest = name.substr(stack_.size());
    const MixerSpec& mixer = spec_.block(std::stoll(std::string(rest))).mixer;
    const std::string part = fmt::format(".{}.", mixer.part());
    return !mixer.attends() && rest.find(part) != std::string_view::npos &&
           (rest.ends_with(part + "norm") || rest.ends_with(part + "branch"));
  }
  bool is_of_windows(std::string_view name) const {
    const int64_t layer = std::stoll(std::string(name.substr(stack_.size())));
    const AttentionSpec& a = spec_.block(layer).attention;
    return name.ends_with(".attention.probabilities") && !a.patterns.empty() && !a.sinks;
  }

  const ModelSpec& spec_;
  std::string stack_;
};

// A batch with its padding as tokens, and flags for the real tokens.
struct Filled {
  PaddedBatch batch;
  std::vector<bool> real;
};

Filled filled(const TensorFile& in, const std::string& path, const std::string& name, int64_t vocab,
              const PaddedBatch& real) {
  Filled f{read_padded(in, path, name, "", vocab, 0), {}};
  f.real.assign(f.batch.places.size(), false);
  for (const int64_t place : real.places) f.real[static_cast<size_t>(place)] = true;
  return f;
}

// The mask: a token sees no padding, and of the others those that the stack's mask allows.
Visibility visibility_of(const Filled& f, bool causal) {
  std::vector<int32_t> queries, keys;
  for (size_t i = 0; i < f.real.size(); ++i) {
    const auto rank = causal ? static_cast<int32_t>(static_cast<int64_t>(i) % f.batch.columns) : 0;
    queries.push_back(rank);
    keys.push_back(f.real[i] ? rank : kUnseen);
  }
  return {std::move(queries), std::move(keys)};
}

// Router logits of one stack: [rows, columns, E] of each layer.
Routers run_stack(const Transformer& model, const TensorFile& in, const std::string& path,
                  const Inputs& inputs, bool encoder) {
  const ModelSpec& spec = model.spec();
  const bool both = spec.architecture == Architecture::encoder_decoder, source = both && encoder;
  const PaddedBatch& real = source ? inputs.source : inputs.tokens;
  check(!inputs.input.visibility.table.defined(),
        "{}: attention_mask: a mask of pairs [B, T, T] does not go with the routers of experts "
        "(--hidden-states)",
        path);
  const bool padded = std::ssize(real.places) < real.rows * real.columns && !inputs.input.globals.defined();
  if (source && inputs.input.source_keys.defined()) return {};  // given rows were not encoded here
  RouterProbe probe(spec, encoder ? "encoder" : "decoder");
  Context context;
  context.probe = &probe;
  ModelInput input = inputs.input;
  if (both && !encoder) {  // the decoder's tokens unchanged; padding, if any, follows them
    model.hidden(input, context);
  } else if (!padded) {
    source ? model.encode(input, context) : model.hidden(input, context);
  } else {
    const Filled f = filled(in, path, "input_ids", spec.input_vocab_size(), real);
    context.visibility = visibility_of(f, !encoder);
    probe.real = f.real;
    (source ? input.source : input.ids) = f.batch.ids;
    (source ? input.source_layout : input.layout) = f.batch.layout();
    input.visibility = context.visibility;
    if (input.segments.defined()) {
      const std::vector<int64_t> types = integers(in, "token_type_ids", path);
      input.segments = std::vector<int32_t>(types.begin(), types.end());
    }
    source ? model.encode(input, context) : model.hidden(input, context);
    for (auto& [layer, logits] : probe.found) logits = f.batch.spread(logits);
    return probe.found;
  }
  for (auto& [layer, logits] : probe.found) logits = real.spread(logits);
  return probe.found;
}

// Statistics of rows of logits: the chosen experts, best first, and the probability of each.
struct Affinities {
  explicit Affinities(int64_t count, int64_t chosen)
      : loads(static_cast<size_t>(count * chosen)), mean(static_cast<size_t>(count)), chosen(chosen) {}
  void add(std::span<const float> logits) {
    double sum = 0;
    const float most = std::ranges::max(logits);
    for (const float l : logits) sum += std::exp(static_cast<double>(l - most));
    std::vector<size_t> order(logits.size());
    for (size_t e = 0; e < order.size(); ++e) order[e] = e;
    std::ranges::stable_sort(order, std::greater(), [&](size_t e) { return logits[e]; });
    for (size_t e = 0; e < order.size(); ++e)
      mean[e] += std::exp(static_cast<double>(logits[e] - most)) / sum;
    for (int64_t k = 0; k < chosen; ++k) loads[static_cast<size_t>(k) * order.size() + order[k]] += 1;
    const double log_sum = most + std::log(sum);
    squared_log_sums += log_sum * log_sum;
    ++rows;
  }
  // E sum_e f_e P_e, where f_e is the share of rows that chose e as their first, second ...
  double balance() const {
    double sum = 0;
    for (size_t i = 0; i < loads.size(); ++i) sum += loads[i] * mean[i % mean.size()];
    return rows == 0 ? 0 : sum * static_cast<double>(mean.size()) / static_cast<double>(rows * rows);
  }

  std::vector<double> loads, mean;  // summed over the rows
  int64_t chosen, rows = 0;
  double squared_log_sums = 0;
};

Tensor number(double x) {
  return Tensor::of({}, std::vector<float>{static_cast<float>(x)});
}

using Named = std::vector<std::pair<std::string, Tensor>>;

void add_language_model(const Routers& routers, const Inputs& inputs, const ExpertsSpec& experts,
                        Named& out) {
  Affinities all(experts.count, experts.chosen);
  int64_t i = 0;  // layers without experts are not counted
  for (const auto& [layer, logits] : routers) {
    const int64_t places = inputs.tokens.rows * inputs.tokens.columns;
    out.emplace_back(fmt::format("router_logits.{}", i++), logits.reshape({places, experts.count}));
    for (const int64_t place : inputs.tokens.places) all.add(logits.row<float>(place));
  }
  if (experts.score == RouterScore::softmax && experts.groups == 1)
    out.emplace_back("aux_loss", number(all.balance()));
}

void add_stack(const Routers& routers, const std::string& name, int64_t layers, const PaddedBatch& batch,
               const ExpertsSpec& experts, Named& out) {
  for (int64_t l = 0; l < layers; ++l)
    if (!routers.contains(l))
      out.emplace_back(fmt::format("{}_router_logits.{}.0", name, l),
                       Tensor::of({1}, std::vector<int64_t>{0}));
  for (const auto& [layer, logits] : routers) {
    std::vector<int64_t> chosen;
    for (int64_t i = 0; i < batch.rows * batch.columns; ++i) {
      const auto l = logits.row<float>(i);
      chosen.push_back(std::ranges::max_element(l) - l.begin());
    }
    out.emplace_back(fmt::format("{}_router_logits.{}.0", name, layer), logits);
    out.emplace_back(fmt::format("{}_router_logits.{}.1", name, layer),
                     Tensor::of({batch.rows, batch.columns}, chosen));
  }
  double balance = 0, squared = 0;
  int64_t rows = 0;
  for (int64_t r = 0; r < batch.rows; ++r) {
    Affinities of_sequence(experts.count, 1);
    for (const auto& [layer, logits] : routers)
      for (int64_t t = 0; t < batch.columns; ++t) of_sequence.add(logits.row<float>(r * batch.columns + t));
    balance += of_sequence.balance() / static_cast<double>(batch.rows);
    squared += of_sequence.squared_log_sums;
    rows += of_sequence.rows;
  }
  out.emplace_back(name + "_aux_loss", number(balance));
  out.emplace_back(name + "_z_loss", number(squared / static_cast<double>(std::max<int64_t>(rows, 1))));
}

}  // namespace

Named router_outputs(const Transformer& model, const TensorFile& in, const std::string& path,
                     const Inputs& inputs) {
  const ModelSpec& spec = model.spec();
  const ExpertsSpec experts = spec.experts_in_use();
  Named out;
  if (spec.architecture == Architecture::encoder_decoder) {
    add_stack(run_stack(model, in, path, inputs, true), "encoder", spec.encoder_layers, inputs.source,
              experts, out);
    add_stack(run_stack(model, in, path, inputs, false), "decoder", spec.layers, inputs.tokens, experts, out);
  } else {
    const bool encoder = spec.architecture == Architecture::encoder;
    add_language_model(run_stack(model, in, path, inputs, encoder), inputs, experts, out);
  }
  return out;
}

}  // namespace qkv
