#include "qkv/nn/recurrence.h"

#include "qkv/ops/elementwise.h"
#include "qkv/ops/parts.h"
#include "qkv/ops/source_attention.h"

namespace qkv {

Recurrence::Recurrence(Parameters& parameters, const std::string& name, Cell cell, int64_t in, int64_t width,
                       float std)
    : cell_(cell),
      width_(width),
      input_(parameters, name + ".input", in, gates_of(cell) * width, true, std),
      state_(&parameters.add(name + ".state.weight", {gates_of(cell) * width, width}, ParameterKind::matrix,
                             {Initializer::Kind::normal, std})) {}

RecurrenceResult Recurrence::forward(const Tensor& input, const Tensor& first,
                                     std::span<const int32_t> offsets, bool backwards) const {
  return recurrence(cell_, input, state_->value, first, offsets, backwards);
}

SourceAttentionLayer::SourceAttentionLayer(Parameters& parameters, const std::string& name,
                                           SourceAttention kind, int64_t width, int64_t window, float std)
    : name_(name), kind_(kind), width_(width), window_(window) {
  const auto linear = [&](const char* part, int64_t out) {
    return std::make_unique<Linear>(parameters, name + part, width, out, false, std);
  };
  if (kind == SourceAttention::additive) {
    q_ = linear(".q", width);
    k_ = linear(".k", width);
    v_ = &parameters.add(name + ".v", {width}, ParameterKind::vector, {Initializer::Kind::normal, std});
  } else if (kind == SourceAttention::local) {
    place_ = linear(".place", width);
    to_place_ = linear(".to_place", 1);
  }
}

SourceAttentionLayer::Source SourceAttentionLayer::source(const Context& context) const {
  SourceState* memory = state(context);
  if (memory == nullptr || !memory->filled()) {
    check(context.source.defined(), "{}: there is no source to attend to", name_);
    const Tensor& values = context.source;
    // A tensor of their own: attention() writes the gradients of keys and values in place.
    const Tensor keys = k_ ? k_->forward(values) : columns_of(values, 0, width_);
    const std::vector<int32_t>& offsets = context.source_layout.offsets;
    if (memory == nullptr) return {keys, values, KeyLayout::contiguous(offsets)};
    memory->append({keys, 0, 1, width_}, {values, 0, 1, width_}, offsets);
  }
  return {memory->keys().x, memory->values().x, memory->layout()};
}

Tensor SourceAttentionLayer::forward(const Tensor& h, std::span<const int32_t> offsets,
                                     const Source& source) const {
  switch (kind_) {
    case SourceAttention::additive:
      return additive_attention(q_->forward(h), source.keys, source.values, v_->value, offsets,
                                source.layout);
    case SourceAttention::local: {
      const Tensor u = to_place_->forward(activation(Activation::tanh, place_->forward(h)));
      return local_attention(h, source.keys, source.values, convert(u, DType::f32), window_, offsets,
                             source.layout);
    }
    default:
      return attention({h, 0, 1, width_}, {source.keys, 0, 1, width_}, {source.values, 0, 1, width_}, offsets,
                       source.layout, {});
  }
}

std::unique_ptr<SourceState> SourceAttentionLayer::make_state(int64_t sequences) const {
  return std::make_unique<SourceState>(sequences, 1, width_, width_);
}

}  // namespace qkv
