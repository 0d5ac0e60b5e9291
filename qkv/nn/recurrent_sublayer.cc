#include "qkv/nn/recurrent_sublayer.h"

#include "qkv/ops/parts.h"

namespace qkv {

RecurrentSublayer::RecurrentSublayer(Parameters& parameters, const std::string& name, Cell cell,
                                     int64_t width, bool both_ways, float std)
    : name_(name),
      forward_(parameters, both_ways ? name + ".forward" : name, cell, width, both_ways ? width / 2 : width,
               std),
      backward_(both_ways ? std::make_unique<Recurrence>(parameters, name + ".backward", cell, width,
                                                         width / 2, std)
                          : nullptr) {}

Tensor RecurrentSublayer::input(const Recurrence& way, const char* name, const Tensor& x,
                                const Context& context) const {
  Tensor gates = way.input(x, context);
  context.visit(name_, name, gates);
  return gates;
}

Tensor RecurrentSublayer::forward(const Tensor& x, const Context& context) const {
  const std::vector<int32_t>& offsets = context.layout.offsets;
  if (backward_ != nullptr)
    return join_columns(
        forward_.forward(input(forward_, ".forward.input", x, context), {}, offsets).hidden,
        backward_->forward(input(*backward_, ".backward.input", x, context), {}, offsets, true).hidden);
  RecurrentState* memory = forward_.state(context);
  if (memory != nullptr && !memory->begun())
    memory->begin(Tensor::zeros({context.layout.sequences(), forward_.state_width()}, DType::f32));
  const RecurrenceResult r = forward_.forward(input(forward_, ".input", x, context),
                                              memory != nullptr ? memory->last() : Tensor(), offsets);
  if (!recording()) {  // they can be read, but a pass does not go on from others
    Tensor states = r.states;
    context.visit(name_, ".states", states);
  }
  if (memory != nullptr) memory->append(r.states, offsets);
  return r.hidden;
}

}  // namespace qkv
