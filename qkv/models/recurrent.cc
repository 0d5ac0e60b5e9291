#include "qkv/models/recurrent.h"

#include <numeric>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/parts.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

std::string layer_name(const std::string& stack, int64_t layer) {
  return fmt::format("{}.block.{}", stack, layer);
}

// Offsets of n sequences of one row.
std::vector<int32_t> one_each(int64_t n) {
  std::vector<int32_t> offsets(n + 1);
  std::iota(offsets.begin(), offsets.end(), 0);
  return offsets;
}

}  // namespace

RecurrentEncoder::RecurrentEncoder(Parameters& parameters, const std::string& name, const ModelSpec& spec,
                                   uint32_t site)
    : name_(name), dropout_(spec.residual_dropout), site_(site) {
  const bool both = spec.recurrence.bidirectional;
  for (int64_t l = 0; l < spec.encoder_layers; ++l) {
    const std::string layer = layer_name(name, l);
    const auto recurrence = [&](const char* direction) {
      return Recurrence(parameters, layer + direction, spec.recurrence.encoder, spec.width,
                        both ? spec.width / 2 : spec.width, spec.init_std);
    };
    Recurrence forward = recurrence(both ? ".forward" : "");
    layers_.push_back(
        {layer, std::move(forward), both ? std::make_unique<Recurrence>(recurrence(".backward")) : nullptr});
  }
}

Tensor RecurrentEncoder::forward(const Tensor& x, const Context& context) const {
  const std::vector<int32_t>& offsets = context.layout.offsets;
  Tensor h = x;
  context.visit(name_, ".embedding", h);
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    // The first layer's input was dropped as an embedding.
    if (l > 0) h = dropout(h, context.dropout(dropout_, site_ + static_cast<uint32_t>(l) * kSitesALayer));
    const Tensor ahead = layer.forward.forward(layer.forward.input(h, context), {}, offsets).hidden;
    h = layer.backward
            ? join_columns(
                  ahead, layer.backward->forward(layer.backward->input(h, context), {}, offsets, true).hidden)
            : ahead;
    context.visit(layer.name, "", h);
  }
  return h;
}

RecurrentDecoder::RecurrentDecoder(Parameters& parameters, const std::string& name, const ModelSpec& spec,
                                   uint32_t site)
    : name_(name),
      dropout_(spec.residual_dropout),
      site_(site),
      spec_(spec.recurrence),
      begin_(parameters, name + ".begin", spec.width, spec.layers * state_parts(spec_.decoder) * spec.width,
             false, spec.init_std) {
  for (int64_t l = 0; l < spec.layers; ++l)
    layers_.emplace_back(parameters, layer_name(name, l), spec_.decoder, spec.width, spec.width,
                         spec.init_std);
  if (spec_.attention == SourceAttention::none) return;
  attention_ = std::make_unique<SourceAttentionLayer>(parameters, name + ".source_attention", spec_.attention,
                                                      spec.width, spec_.window, spec.init_std);
  if (spec_.attention == SourceAttention::additive)
    context_ = std::make_unique<Linear>(parameters, layer_name(name, 0) + ".context", spec.width,
                                        layers_[0].gates_width(), false, spec.init_std);
  readout_ = std::make_unique<Linear>(parameters, name + ".readout", 2 * spec.width, spec.width, false,
                                      spec.init_std);
}

Tensor RecurrentDecoder::summary(const Context& context) const {
  check(context.source.defined(), "{}: there is no source to begin with", name_);
  const std::vector<int32_t>& offsets = context.source_layout.offsets;
  if (spec_.encoder == Cell::none) return mean_of_sequences(context.source, offsets);
  // Read both ways, the first row is where the way back ends.
  std::vector<int32_t> rows(offsets.begin(), offsets.end() - 1);
  if (!spec_.bidirectional)
    for (size_t s = 0; s < rows.size(); ++s) rows[s] = offsets[s + 1] - 1;
  return select_rows(context.source, rows);
}

std::vector<Tensor> RecurrentDecoder::first_states(const Context& context) const {
  const Tensor all = convert(activation(Activation::tanh, begin_.forward(summary(context))), DType::f32);
  std::vector<Tensor> states;
  const int64_t width = layers_[0].state_width();
  for (int64_t l = 0; l < std::ssize(layers_); ++l)
    states.push_back(columns_of(all, l * width, (l + 1) * width));
  return states;
}

RecurrenceResult RecurrentDecoder::search(const Tensor& x, const Tensor& first, const Context& context,
                                          const Source& source, Tensor& looked) const {
  const Recurrence& layer = layers_[0];
  const TimeOrder time = TimeOrder::of(context.layout.offsets);
  std::vector<int64_t> counts;
  for (int64_t t = 0; t < time.steps(); ++t) counts.push_back(time.running(t));
  const std::vector<Tensor> inputs = split_rows(select_rows(layer.input(x, context), time.rows), counts);
  Tensor state = select_rows(first, time.sequences);
  std::vector<Tensor> hidden, states, contexts;
  for (size_t t = 0; t < counts.size(); ++t) {
    if (counts[t] < state.dim(0))
      state = split_rows(state, std::vector<int64_t>{counts[t], state.dim(0) - counts[t]})[0];
    Source running{source.keys, source.values, {}};
    for (int64_t i = 0; i < counts[t]; ++i) {
      const int32_t s = time.sequences[i];
      running.layout.lengths.push_back(source.layout.lengths[s]);
      running.layout.block_offsets.push_back(static_cast<int32_t>(i));
      running.layout.blocks.push_back(source.layout.blocks[source.layout.block_offsets[s]]);
    }
    const std::vector<int32_t> offsets = one_each(counts[t]);
    const Tensor h = convert(columns_of(state, 0, layer.width()), x.dtype());
    contexts.push_back(attention_->forward(h, offsets, running));
    const RecurrenceResult r =
        layer.forward(add(inputs[t], context_->forward(contexts.back())), state, offsets);
    hidden.push_back(r.hidden);
    states.push_back(state = r.states);
  }
  std::vector<int32_t> back(time.rows.size());
  for (size_t i = 0; i < back.size(); ++i) back[time.rows[i]] = static_cast<int32_t>(i);
  looked = select_rows(join_rows(contexts), back);
  return {select_rows(join_rows(hidden), back), select_rows(join_rows(states), back)};
}

Tensor RecurrentDecoder::forward(const Tensor& x, const Context& context) const {
  const std::vector<int32_t>& offsets = context.layout.offsets;
  std::vector<RecurrentState*> memory;
  for (const Recurrence& layer : layers_) memory.push_back(layer.state(context));
  const Source source = attention_ ? attention_->source(context) : Source{};
  std::vector<Tensor> first;
  if (memory[0] == nullptr || !memory[0]->begun()) {
    first = first_states(context);
    for (size_t l = 0; l < layers_.size(); ++l)
      if (memory[l] != nullptr) memory[l]->begin(first[l]);
  } else {
    for (const RecurrentState* state : memory) first.push_back(state->last());
  }
  Tensor h = x, looked;
  context.visit(name_, ".embedding", h);
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (l > 0) h = dropout(h, context.dropout(dropout_, site_ + static_cast<uint32_t>(l) * kSitesALayer));
    const RecurrenceResult r = l == 0 && context_
                                   ? search(h, first[0], context, source, looked)
                                   : layers_[l].forward(layers_[l].input(h, context), first[l], offsets);
    if (memory[l] != nullptr) memory[l]->append(r.states, offsets);
    h = r.hidden;
    if (context.probe != nullptr) context.visit(layer_name(name_, static_cast<int64_t>(l)), "", h);
  }
  if (attention_) {
    if (!context_) looked = attention_->forward(h, offsets, source);
    context.visit(name_, ".source_attention", looked);
    h = activation(Activation::tanh, readout_->forward(join_columns(looked, h)));
  }
  context.visit(name_, ".readout", h);
  return dropout(h, context.dropout(dropout_, site_ + 1));
}

DecodingStates RecurrentDecoder::make_states(int64_t sequences) const {
  DecodingStates states;
  if (attention_) attention_->add_state(states, sequences);
  for (const Recurrence& layer : layers_) layer.add_state(states, sequences);
  return states;
}

}  // namespace qkv
