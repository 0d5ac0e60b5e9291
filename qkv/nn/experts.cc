#include "qkv/nn/experts.h"

#include <numeric>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

Tensor value_of(const Parameter* bias) {
  return bias != nullptr ? bias->value : Tensor();
}

Tensor ones_like(const Tensor& x) {
  return Tensor::of(x.shape(), std::vector<float>(static_cast<size_t>(x.count()), 1));
}

}  // namespace

Experts::Experts(Parameters& parameters, const std::string& name, int64_t width,
                 const FeedForwardSpec& network, const ExpertsSpec& spec, InitStd std)
    : name_(name), network_(network), spec_(spec) {
  const auto matrix = [&](const std::string& of, int64_t out, int64_t in, float deviation) {
    return &parameters.add(name + of + ".weight", {out, in}, ParameterKind::matrix,
                           {Initializer::Kind::normal, deviation});
  };
  const auto bias = [&](const std::string& of, int64_t count) {
    return &parameters.add(name + of + ".bias", {count}, ParameterKind::vector, {Initializer::Kind::zeros});
  };
  router_ = matrix(".router", spec.count, width, std.inner);
  if (spec.router_bias) router_bias_ = bias(".router", spec.count);
  if (spec.choice_bias) {
    choice_bias_ = &parameters.add(name + ".router.choice_bias", {spec.count}, ParameterKind::vector,
                                   {Initializer::Kind::zeros});
    choice_bias_->learned = false;
  }
  up_ = matrix(".experts.up", spec.count * (network.gated ? 2 : 1) * spec.hidden, width, std.inner);
  down_ = matrix(".experts.down", spec.count * width, spec.hidden, std.out);
  up_->any_type = down_->any_type = true;
  if (spec.bias) {
    up_bias_ = bias(".experts.up", up_->shape[0]);
    down_bias_ = bias(".experts.down", down_->shape[0]);
  }
  if (spec.shared_hidden > 0) {
    FeedForwardSpec shared = network;
    shared.hidden = spec.shared_hidden;
    shared_ = std::make_unique<FeedForward>(parameters, name + ".shared", width, shared, std);
  }
  if (spec.shared_gated) shared_gate_ = matrix(".shared_gate", 1, width, std.inner);
}

void Experts::expect_capacity(const Indices& experts, const Context& context) const {
  const std::vector<int32_t>& offsets = context.layout.offsets;
  const int64_t k = experts.width();
  const auto chosen = experts.values();
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    std::vector<int64_t> taken(spec_.count);
    for (int64_t i = offsets[s] * k; i < offsets[s + 1] * k; ++i)
      check(++taken[chosen[i]] <= spec_.capacity,
            "{}: more than {} tokens of a sequence go to one expert: leaving tokens out is not supported",
            name_, spec_.capacity);
  }
}

Tensor Experts::shared(const Tensor& x, const Context& context) const {
  const Tensor y = shared_->forward(x, context);
  if (shared_gate_ == nullptr) return y;
  // A mixture of one.
  const Choice gate =
      choose_experts(linear(x, shared_gate_->value, {}, DType::f32), {.score = RouterScore::sigmoid});
  std::vector<int32_t> rows(x.rows());
  std::iota(rows.begin(), rows.end(), 0);
  return weighted_rows(y, {std::move(rows), 1}, gate.weights);
}

namespace {

// The weights of a choice, 0 for experts that are not chosen: [N, experts].
Tensor by_expert(const Choice& choice, int64_t experts) {
  Tensor out = Tensor::zeros({choice.weights.rows(), experts}, DType::f32);
  const auto chosen = choice.experts.values();
  for (int64_t r = 0; r < out.rows(); ++r)
    for (int64_t k = 0; k < choice.weights.width(); ++k)
      out.mutable_row<float>(r)[chosen[r * choice.weights.width() + k]] = choice.weights.row<float>(r)[k];
  return out;
}

}  // namespace

// No gradient reaches the bias: where it would stand the loads of the step are counted.
void Experts::note_loads(const ExpertRows& rows) const {
  Leaf& leaf = *choice_bias_->leaf;
  const auto loads = leaf.grad.mutable_values<float>();
  for (int64_t e = 0; e < spec_.count; ++e)
    loads[e] = (leaf.fresh ? 0 : loads[e]) + static_cast<float>(rows.offsets[e + 1] - rows.offsets[e]);
  leaf.fresh = false;
}

void Experts::update_buffers() const {
  if (choice_bias_ == nullptr || choice_bias_->leaf == nullptr || choice_bias_->leaf->fresh) return;
  const auto loads = choice_bias_->leaf->grad.values<float>();
  const float mean = std::accumulate(loads.begin(), loads.end(), 0.0F) / static_cast<float>(spec_.count);
  const auto bias = choice_bias_->value.mutable_values<float>();
  for (int64_t e = 0; e < spec_.count && !choice_bias_->frozen; ++e)
    bias[e] -= spec_.choice_rate * static_cast<float>((loads[e] > mean) - (loads[e] < mean));
  choice_bias_->leaf->fresh = true;  // layers that share it count together
}

// The rows that the experts read: [M, D].
Tensor Experts::inputs(const Tensor& x, const ExpertRows& rows, const Tensor& weights) const {
  const Tensor chosen = select_rows(x, rows.tokens);
  return spec_.input_weighted ? scaled_rows(chosen, rows.places, weights) : chosen;
}

Tensor Experts::forward(const Tensor& x, const Context& context) const {
  Tensor logits = linear(x, router_->value, value_of(router_bias_), DType::f32);
  context.visit(name_, ".router", logits);
  const Choice choice =
      choose_experts(logits, {spec_.chosen, spec_.score, spec_.renormalized, spec_.scale, spec_.groups,
                              spec_.chosen_groups, choice_bias_ ? choice_bias_->value.detach() : Tensor(),
                              context.training ? spec_.balance * context.balance_scale : 0});
  if (!recording() && context.probed(name_, ".weights")) {
    Tensor weights = by_expert(choice, spec_.count);
    context.visit(name_, ".weights", weights);
  }
  if (spec_.capacity > 0) expect_capacity(choice.experts, context);
  const ExpertRows rows = rows_by_expert(choice.experts, spec_.count);
  if (context.observed && recording() && choice_bias_ && choice_bias_->leaf) note_loads(rows);
  const Tensor up =
      expert_linear(inputs(x, rows, choice.weights), up_->weight(), value_of(up_bias_), rows.offsets);
  const Tensor hidden = activated(network_, up);
  const Tensor outputs = expert_linear(hidden, down_->weight(), value_of(down_bias_), rows.offsets);
  const Tensor y =
      weighted_rows(outputs, rows.places, spec_.input_weighted ? ones_like(choice.weights) : choice.weights);
  return shared_ ? add(y, shared(x, context)) : y;
}

}  // namespace qkv
