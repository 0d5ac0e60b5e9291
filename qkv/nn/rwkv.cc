#include "qkv/nn/rwkv.h"

#include <cmath>
#include <utility>
#include <vector>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/fast_weights.h"
#include "qkv/ops/group_norm.h"
#include "qkv/ops/parts.h"
#include "qkv/ops/products.h"
#include "qkv/ops/token_shift.h"
#include "qkv/ops/wkv.h"

namespace qkv {
namespace {

constexpr float kLargestDecay = -0.606531F;  // the logarithm; -exp(-1/2)
constexpr float kHeadEpsilon = 64e-5F;
constexpr float kShortest = 1e-12F;  // keys that are taken out: their length before they are of length 1

// from + (to - from) (c / (width - 1))^power in channel c.
Parameter& add_ramp(Parameters& parameters, const std::string& name, int64_t width, float from, float to,
                    float power) {
  Initializer listed{.kind = Initializer::Kind::listed};
  for (int64_t c = 0; c < width; ++c) {
    const float part = width > 1 ? static_cast<float>(c) / static_cast<float>(width - 1) : 0;
    listed.values.push_back(from + (to - from) * std::pow(part, power));
  }
  return parameters.add(name, {width}, ParameterKind::vector, std::move(listed));
}

Parameter& add_constant(Parameters& parameters, const std::string& name, int64_t width, float value) {
  return parameters.add(name, {width}, ParameterKind::vector, {Initializer::Kind::constant, 0, value});
}

}  // namespace

Rwkv4::Rwkv4(Parameters& parameters, const std::string& name, const Rwkv4Spec& spec, int64_t width,
             InitStd std)
    : inner_(spec.inner),
      shift_(width),
      of_k_(&add_shift(parameters, name + ".shift.k", width, 0.5F)),
      of_v_(&add_shift(parameters, name + ".shift.v", width, 0.5F)),
      of_r_(&add_shift(parameters, name + ".shift.r", width, 0.25F)),
      k_(parameters, name + ".k", width, spec.inner, false, std.inner),
      v_(parameters, name + ".v", width, spec.inner, false, std.inner),
      r_(parameters, name + ".r", width, spec.inner, false, std.inner),
      log_rate_(&add_ramp(parameters, name + ".log_rate", spec.inner, -5, 3, 1)),
      bonus_(&add_constant(parameters, name + ".bonus", spec.inner, std::log(0.3F))),
      out_(parameters, name + ".out", spec.inner, width, false, std.out) {}

void Rwkv4::add_states(DecodingStates& states, int64_t sequences) const {
  shift_.add_states(states, sequences);
  ReplayedMixer::add_states(states, sequences);
}

Tensor Rwkv4::forward(const Tensor& x, const Context& context) const {
  const Tensor before = shift_.before(x, context);
  const auto read_by = [&](const Linear& map, const Parameter* part) {
    return map.forward(mixed(before, x, part->value), context);
  };
  const Tensor k = read_by(k_, of_k_), v = read_by(v_, of_v_), r = read_by(r_, of_r_);
  const Tensor y = read(join_columns(k, v), context);
  return out_.forward(product(activation(Activation::sigmoid, r), y), context);
}

ReplayedMixer::Pass Rwkv4::pass(const Tensor& rows, const Tensor& first, std::span<const int32_t> offsets,
                                std::span<const int32_t> marks) const {
  const WkvResult r = wkv(
      {columns_of(rows, 0, inner_), columns_of(rows, inner_, 2 * inner_), log_rate_->value, bonus_->value},
      first, offsets, marks);
  return {r.y, r.state, r.marked};
}

Rwkv7::LowRank::LowRank(Parameters& parameters, const std::string& name, int64_t width, int64_t rank,
                        bool bias, float std)
    : down(parameters, name + ".down", width, rank, false, std),
      up(parameters, name + ".up", rank, width, bias, std) {}

Rwkv7::Rwkv7(Parameters& parameters, const std::string& name, const Rwkv7Spec& spec, int64_t width,
             bool first_layer, InitStd std)
    : width_(width),
      heads_(spec.heads),
      shift_(width),
      of_r_(&add_shift(parameters, name + ".shift.r", width, 0.2F)),
      of_w_(&add_shift(parameters, name + ".shift.w", width, 0.9F)),
      of_k_(&add_shift(parameters, name + ".shift.k", width, 0.7F)),
      of_v_(&add_shift(parameters, name + ".shift.v", width, 0.7F)),
      of_a_(&add_shift(parameters, name + ".shift.a", width, 0.9F)),
      of_g_(&add_shift(parameters, name + ".shift.g", width, 0.2F)),
      r_(parameters, name + ".r", width, width, false, std.inner),
      k_(parameters, name + ".k", width, width, false, std.inner),
      v_(parameters, name + ".v", width, width, false, std.inner),
      decay_(parameters, name + ".decay", width, spec.decay_rank, true, std.inner),
      rate_(parameters, name + ".rate", width, spec.rate_rank, true, std.inner),
      value_(first_layer ? nullptr
                         : std::make_unique<LowRank>(parameters, name + ".value", width, spec.value_rank,
                                                     true, std.inner)),
      gate_(parameters, name + ".gate", width, spec.gate_rank, false, std.inner),
      key_scale_(&add_constant(parameters, name + ".key_scale", width, 0.85F)),
      key_rate_(&add_constant(parameters, name + ".key_rate", width, 1)),
      bonus_(&add_constant(parameters, name + ".bonus", width, 0)),
      gamma_(&add_constant(parameters, name + ".head_norm.gamma", width, 1)),
      beta_(&add_constant(parameters, name + ".head_norm.beta", width, 0)),
      out_(parameters, name + ".out", width, width, false, std.out) {
  const int64_t d = width / heads_;
  unit_ = Tensor::of({d}, std::vector<float>(static_cast<size_t>(d), 1 / std::sqrt(static_cast<float>(d))));
}

void Rwkv7::add_states(DecodingStates& states, int64_t sequences) const {
  shift_.add_states(states, sequences);
  ReplayedMixer::add_states(states, sequences);
}

Tensor Rwkv7::forward(const Tensor& x, const Context& context) const {
  using enum Activation;
  const int64_t d = width_ / heads_;
  const Tensor before = shift_.before(x, context);
  const auto at = [&](const Parameter* part) { return mixed(x, before, part->value); };
  const auto low_rank = [&](const LowRank& of, Activation inner, const Tensor& from) {
    return of.up.forward(activation(inner, of.down.forward(from, context)), context);
  };
  const Tensor r = r_.forward(at(of_r_), context), first_k = k_.forward(at(of_k_), context);
  const Tensor for_v = at(of_v_);
  Tensor v = v_.forward(for_v, context);
  if (value_ == nullptr) {
    if (context.left_keys != nullptr) context.left_keys->values = v;
  } else {
    check(context.reused_keys != nullptr && context.reused_keys->values.defined(),
          "rwkv7: the first layer has left no values");
    v = mixed(v, context.reused_keys->values, activation(sigmoid, low_rank(*value_, identity, for_v)));
  }
  const Tensor decay = low_rank(decay_, tanh, at(of_w_));
  const Tensor a = activation(sigmoid, low_rank(rate_, identity, at(of_a_)));
  const Tensor gate = low_rank(gate_, sigmoid, at(of_g_));
  const Tensor taken = group_rms_norm(scaled_heads(first_k, key_scale_->value), {0, heads_, d}, unit_,
                                      kShortest * kShortest / static_cast<float>(d));
  const Tensor k = mixed(first_k, product(first_k, a), key_rate_->value);
  Tensor rows = r;
  for (const Tensor* part : {&decay, &k, &std::as_const(v), &taken, &a}) rows = join_columns(rows, *part);
  const Tensor y =
      group_layer_norm(read(rows, context), {0, heads_, d}, gamma_->value, beta_->value, kHeadEpsilon);
  const Tensor favoured = scaled_heads(v, head_dots(scaled_heads(r, bonus_->value), k, heads_));
  return out_.forward(product(add(y, favoured), gate), context);
}

ReplayedMixer::Pass Rwkv7::pass(const Tensor& rows, const Tensor& first, std::span<const int32_t> offsets,
                                std::span<const int32_t> marks) const {
  const auto part = [&](int64_t i) { return columns_of(rows, i * width_, (i + 1) * width_); };
  const Tensor taken = part(4);
  const FastWeightsResult r = fast_weights(
      {.heads = heads_,
       .key_heads = heads_,
       .q = part(0),
       .k = part(2),
       .v = part(3),
       .decay = scaled(activation(Activation::sigmoid, convert(part(1), DType::f32)), kLargestDecay),
       .a = scaled(taken, -1),
       .b = product(taken, part(5))},
      first, offsets, offsets, true, marks);
  return {r.y, r.state, r.marked};
}

}  // namespace qkv
