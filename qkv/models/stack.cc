#include "qkv/models/stack.h"

#include <algorithm>
#include <cmath>

#include "qkv/models/mixers/mixer_place.h"
#include "qkv/nn/attention.h"
#include "qkv/nn/experts.h"
#include "qkv/nn/feed_forward.h"
#include "qkv/nn/layer_input.h"
#include "qkv/nn/wrappers.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/parts.h"

namespace qkv {

std::string block_output(const ModelSpec& spec, const std::string& stack, int64_t layer) {
  const BlockSpec& block = spec.block(layer);
  const bool reads_source = spec.architecture == Architecture::encoder_decoder && stack == "decoder";
  const std::string part = block.hidden > 0 ? "feed_forward"
                           : reads_source   ? "cross_attention"
                                            : block.mixer.part();  // attention alone
  const std::string last = block.block_scaled                           ? "scaled"
                           : spec.layer_input_width > 0                 ? "layer_input.sum"
                           : spec.norm_placement == NormPlacement::post ? part + ".norm"
                           : spec.branches == Branches::one_norm || spec.branches == Branches::parallel
                               ? "parallel.sum"
                               : part + ".sum";
  return fmt::format("{}.block.{}.{}", stack, layer, last);
}

BlockStack::Block BlockStack::make_block(Parameters& parameters, const ModelSpec& spec, const Shape& shape,
                                         int64_t layer, InitStd std) const {
  using enum NormPlacement;
  const std::string block_name = fmt::format("{}.block.{}", name_, layer);
  const uint32_t site = site_ + static_cast<uint32_t>(layer) * kSitesALayer;
  const auto name_of = [&](const char* sublayer) { return fmt::format("{}.{}", block_name, sublayer); };
  const auto norm = [&](const std::string& of) {
    return Norm(parameters, of + ".norm", spec.width, spec.norm());
  };
  const auto multiplied = [&](std::unique_ptr<Sublayer> inner) -> std::unique_ptr<Sublayer> {
    if (spec.residual_multiplier == 1) return inner;
    return std::make_unique<Multiplied>(spec.residual_multiplier, std::move(inner));
  };
  Block block;
  // The norm before the branch or on the sum is the residual's; one on the branch is around the sublayer.
  const auto add = [&](const char* sublayer, uint32_t use, const auto& make) {
    const std::string name = name_of(sublayer);
    Residual r{placement_ == post || placement_ == stream    ? placement_
               : placement_ == pre || placement_ == sandwich ? pre
                                                             : none,
               {},
               nullptr,
               spec.residual_dropout,
               site + use,
               name};
    if (r.placement == pre && sublayer == std::string_view(spec.mixer.part()) && !spec.mixer_norm)
      r.placement = none;
    if (r.placement != none) r.norm = norm(name);
    std::unique_ptr<Sublayer> inner = make(name);
    if (placement_ == branch || placement_ == sandwich)
      inner = std::make_unique<OutputNormed>(Norm(parameters, name + ".branch_norm", spec.width, spec.norm()),
                                             std::move(inner));
    r.sublayer = multiplied(std::move(inner));
    block.push_back(std::move(r));
  };
  const auto mixer = [&](const std::string& name) {
    return spec.mixer.make({parameters, name, spec, shape.mask, layer, site, std});
  };
  const auto feed_forward = [&](const std::string& name) -> std::unique_ptr<Sublayer> {
    if (spec.experts.in_layer(layer))
      return std::make_unique<Experts>(parameters, name, spec.width, spec.feed_forward(), spec.experts, std);
    return std::make_unique<FeedForward>(parameters, name, spec.width, spec.feed_forward(), std);
  };
  if (spec.branches == Branches::serial || spec.branches == Branches::reversible) {
    add(spec.mixer.part(), 1, mixer);
    if (shape.source > 0)
      add("cross_attention", 4, [&](const std::string& name) {
        return std::make_unique<CrossAttention>(parameters, name, spec.width, shape.source, spec.attention,
                                                layer, site + 5, std);
      });
    if (spec.hidden > 0) add("feed_forward", 2, feed_forward);
    if (spec.layer_input_width > 0) {
      const std::string name = name_of("layer_input");
      auto inner = std::make_unique<OutputNormed>(
          Norm(parameters, name + ".branch_norm", spec.width, spec.norm()),
          std::make_unique<LayerInput>(parameters, name, spec.width, spec.layer_input_width, spec.activation,
                                       std));
      block.push_back({none, {}, multiplied(std::move(inner)), spec.residual_dropout, site + 7, name});
    }
    return block;
  }
  const std::string first = name_of(spec.mixer.part()), second = name_of("feed_forward");
  const Norm before = norm(first);
  std::unique_ptr<Sublayer> a = mixer(first), f;
  if (spec.branches == Branches::one_norm) {
    f = feed_forward(second);
  } else {
    a = std::make_unique<Normed>(before, std::move(a));
    const Norm its_own = norm(second);
    f = std::make_unique<Normed>(its_own, feed_forward(second));
  }
  Residual r{spec.branches == Branches::one_norm ? pre : none,
             {},
             nullptr,
             spec.residual_dropout,
             site + 2,
             name_of("parallel")};
  if (r.placement == pre) r.norm = before;
  r.sublayer = multiplied(std::make_unique<SideBySide>(first, std::move(a), second, std::move(f)));
  block.push_back(std::move(r));
  return block;
}

BlockStack::BlockStack(Parameters& parameters, const std::string& name, const ModelSpec& spec,
                       const Shape& shape)
    : name_(name),
      placement_(spec.norm_placement),
      reversible_(spec.branches == Branches::reversible),
      site_(shape.site),
      first_(shape.first),
      input_width_(spec.layer_input_width),
      memory_(spec.memory) {
  // Residual branches that are summed up to the end start smaller by the root of their number (GPT-2).
  const int64_t end = shape.first + shape.layers;
  const auto branches = static_cast<float>((shape.source > 0 ? 3 : 2) * end);
  const InitStd std{spec.init_std,
                    placement_ == NormPlacement::pre ? spec.init_std / std::sqrt(branches) : spec.init_std};
  const std::vector<std::string> kinds = spec.kinds_in_use(shape.layers);
  // The model as if all its layers were of one of them.
  std::vector<ModelSpec> specs(kinds.size(), spec.with_kind(kDefaultKind));
  for (size_t i = 0; i < kinds.size(); ++i) static_cast<BlockSpec&>(specs[i]) = spec.block_of(kinds[i]);
  for (int64_t l = 0; l < shape.layers; ++l) {
    const size_t kind = std::ranges::find(kinds, spec.kind_of(l)) - kinds.begin();
    terms_of_.push_back(kind);
    owners_.push_back(spec.owner_of(l, shape.layers));
    if (const int64_t owner = owners_.back(); owner != l)
      parameters.share(fmt::format("{}.block.{}.", name, l), fmt::format("{}.block.{}.", name, owner));
    blocks_.push_back(make_block(parameters, specs[kind], shape, first_ + l, std));
    const std::string scale = fmt::format("{}.block.{}.scale", name, first_ + l);
    scales_.push_back(!specs[kind].block_scaled
                          ? nullptr
                          : &parameters.add(scale, {1}, ParameterKind::vector, {Initializer::Kind::ones}));
    if (scales_.back() != nullptr) scales_.back()->learned = false;
    keys_of_.push_back(spec.keys_of(l));
    keys_left_.push_back(0);
    if (keys_of_[l] != l) keys_left_[static_cast<size_t>(keys_of_[l])] = 1;
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    std::vector<int64_t> layers;
    for (int64_t l = 0; l < shape.layers; ++l)
      if (terms_of_[static_cast<size_t>(l)] == i && owners_[static_cast<size_t>(l)] == l) layers.push_back(l);
    // Tables of single layers are named by the layers.
    const bool own = kinds[i] == kDefaultKind || specs[i].relative_by_layer;
    const std::string of = first_ > 0 ? fmt::format("{}.block.{}", name, first_) : name;
    terms_.emplace_back(parameters, own ? of : fmt::format("{}.kind.{}", name, kinds[i]), specs[i],
                        shape.mask, layers);
  }
  if (spec.ends_with_norm())
    norm_ = std::make_unique<Norm>(parameters, name + ".norm", spec.output_width(), spec.norm());
}

namespace {

// The tensors that leave a block, as the list that recompute() hands on. They may be undefined.
struct LeavingTensors {
  Tensor x, branch, other, keys, values;

  LeavingTensors(const ResidualStream& s, const LayerKeys& left)
      : x(s.x), branch(s.branch), other(s.other), keys(left.keys), values(left.values) {}
  explicit LeavingTensors(const std::vector<Tensor>& list)
      : x(list[0]), branch(list[1]), other(list[2]), keys(list[3]), values(list[4]) {}
  std::vector<Tensor> list() const { return {x, branch, other, keys, values}; }
};

// All that a block reads and that has a gradient.
struct BlockTensors {
  Tensor x, branch, other, source, source_values, distance_bias, distance_vectors, keys, values, layer_input;

  static BlockTensors of(const ResidualStream& s, const Context& c) {
    const LayerKeys reused = c.reused_keys != nullptr ? *c.reused_keys : LayerKeys();
    return BlockTensors({s.x, s.branch, s.other, c.source, c.source_values, c.distance_bias,
                         c.distance_vectors, reused.keys, reused.values, c.layer_input});
  }
  explicit BlockTensors(const std::vector<Tensor>& list)
      : x(list[0]),
        branch(list[1]),
        other(list[2]),
        source(list[3]),
        source_values(list[4]),
        distance_bias(list[5]),
        distance_vectors(list[6]),
        keys(list[7]),
        values(list[8]),
        layer_input(list[9]) {}
  std::vector<Tensor> list() const {
    return {x,    branch, other,      source, source_values, distance_bias, distance_vectors,
            keys, values, layer_input};
  }
};

}  // namespace

void BlockStack::run_block(size_t layer, ResidualStream& stream, const Context& context) const {
  for (const Residual& r : blocks_[layer]) r.forward(stream, context);
  if (scales_[layer] == nullptr) return;
  stream.add_branch(context);
  stream = {
      scaled(stream.x, scales_[layer]->value.values<float>()[0]), {}, {}, name_after(layer), stream.other};
}

std::string BlockStack::name_after(size_t layer) const {
  return scales_[layer] != nullptr
             ? fmt::format("{}.block.{}.scaled", name_, first_ + static_cast<int64_t>(layer))
             : blocks_[layer].back().name + ".sum";
}

Tensor BlockStack::forward(const Tensor& x, const Context& given) const {
  const SegmentStates* segments = given.segment_states;
  check(given.states == nullptr || !recompute_ || !recording(),
        "{}: decoding states cannot be appended to in recomputed blocks", name_);
  Context context = given;
  if (segments != nullptr) {
    SegmentState::Place place = segments->all().front()->place(context.layout);  // that of all
    context.seen = std::move(place.layout);
    context.own_rows = std::move(place.own);
  }
  // Terms of positions are made once for all blocks of a kind.
  std::vector<Context> contexts(terms_.size(), context);
  for (size_t i = 0; i < terms_.size(); ++i)
    terms_[i].prepare(segments ? context.seen : context.layout, x.dtype(), contexts[i]);
  std::vector<LayerKeys> left(blocks_.size());  // by the layers whose keys others reuse
  if (keeps_ends_alone(x, contexts)) return run_reversibly(x, context, contexts);
  ResidualStream stream{x, {}, {}, name_ + ".embedding", reversible_ ? x : Tensor()};
  if (placement_ == NormPlacement::post) context.visit(stream.name, "", stream.x);
  for (size_t l = 0; l < blocks_.size(); ++l) {
    if (dropped(l, context)) continue;
    Context& known = contexts[terms_of_[l]];
    terms_[terms_of_[l]].prepare_layer(owners_[l], segments ? context.seen : context.layout, known);
    const auto at = static_cast<int64_t>(l), keys_of = keys_of_[l];
    known.left_keys = keys_left_[l] ? &left[l] : nullptr;
    known.reused_keys = keys_of != at ? &left[static_cast<size_t>(keys_of)] : nullptr;
    if (input_width_ > 0)
      known.layer_input = columns_of(known.layer_inputs, at * input_width_, (at + 1) * input_width_);
    if (!recompute_ || !recording()) {
      run_block(l, stream, known);
      continue;
    }
    const Dropout pending = stream.dropout;
    const auto out = recompute(BlockTensors::of(stream, known).list(),
                               [this, l, known, pending](const std::vector<Tensor>& list) {
                                 const BlockTensors in(list);
                                 ResidualStream s{in.x, in.branch, pending, {}, in.other};
                                 Context inner = known;
                                 inner.source = in.source;
                                 inner.source_values = in.source_values;
                                 inner.distance_bias = in.distance_bias;
                                 inner.distance_vectors = in.distance_vectors;
                                 inner.layer_input = in.layer_input;
                                 const LayerKeys reused{in.keys, in.values};
                                 LayerKeys made;
                                 if (inner.reused_keys != nullptr) inner.reused_keys = &reused;
                                 if (inner.left_keys != nullptr) inner.left_keys = &made;
                                 run_block(l, s, inner);
                                 return LeavingTensors(s, made).list();
                               });
    const LeavingTensors leaving(out);
    left[l] = {leaving.keys, leaving.values};
    const Residual& last = blocks_[l].back();
    stream = {leaving.x, leaving.branch,
              leaving.branch.defined() ? context.dropout(last.dropout, last.site) : Dropout(), name_after(l),
              leaving.other};
  }
  if (placement_ == NormPlacement::post) return stream.x;
  if (norm_ == nullptr || reversible_) stream.add_branch(context);
  if (reversible_) stream = {join_columns(stream.other, stream.x), {}, {}, name_ + ".streams"};
  if (norm_ == nullptr) return stream.x;
  Tensor out = stream.add_and_norm(*norm_, context);
  context.visit(name_, ".norm", out);
  return out;
}

// In bf16 what blocks read could not be had back from what they left.
bool BlockStack::keeps_ends_alone(const Tensor& x, const std::vector<Context>& contexts) const {
  const auto reads_more = [](const Context& c) {
    return c.distance_bias.defined() || c.distance_vectors.defined() || c.source.defined() ||
           c.layer_inputs.defined() || c.segment_states != nullptr || c.probe != nullptr;
  };
  return reversible_ && recompute_ && recording() && x.dtype() == DType::f32 &&
         std::ranges::none_of(scales_, [](const Parameter* scale) { return scale != nullptr; }) &&
         std::ranges::none_of(keys_left_, [](char left) { return left != 0; }) &&
         std::ranges::none_of(terms_, [](const PositionTerms& t) { return t.differs_by_layer(); }) &&
         std::ranges::none_of(contexts, reads_more);
}

Tensor BlockStack::run_reversibly(const Tensor& x, const Context& context,
                                  const std::vector<Context>& contexts) const {
  std::vector<std::function<Tensor(const Tensor&)>> steps;
  for (size_t l = 0; l < blocks_.size(); ++l)
    for (const Residual& r : blocks_[l]) {
      if (dropped(l, context)) continue;
      steps.emplace_back([&r, its = contexts[terms_of_[l]]](const Tensor& read) {
        ResidualStream stream{read, {}, {}, "", Tensor()};
        r.forward(stream, its);
        return dropout(stream.branch, stream.dropout);
      });
    }
  const TensorPair end = reversible({x, x}, std::move(steps));
  const Tensor both = join_columns(end.other, end.x);
  return norm_ == nullptr ? both : norm_->forward(both, context);
}

void BlockStack::update_buffers() const {
  for (const Block& block : blocks_)
    for (const Residual& r : block) r.sublayer->update_buffers();
}

bool BlockStack::dropped(size_t layer, const Context& context) const {
  if (keys_left_[layer]) return false;  // others need its keys
  const RandomStream stream{context.seed, context.step,
                            site_ + static_cast<uint32_t>(layer) * kSitesALayer + 3};
  return context.training && layer_drop_ > 0 && stream.uniform(0) < double{layer_drop_};
}

SegmentStates BlockStack::make_segment_states(int64_t sequences) const {
  SegmentStates states;
  for (const Block& block : blocks_)
    for (const Residual& r : block) r.sublayer->add_segment_states(states, sequences, memory_);
  return states;
}

DecodingStates BlockStack::make_states(int64_t sequences) const {
  DecodingStates states;
  for (const Block& block : blocks_)
    for (const Residual& r : block) r.sublayer->add_states(states, sequences);
  return states;
}

}  // namespace qkv
