#include "qkv/nn/recurrent_sublayer.h"

#include "qkv/ops/parts.h"

namespace qkv {

RecurrentSublayer::RecurrentSublayer(Parameters& parameters, const std::string& name, Cell cell,
                                     int64_t width, bool both_ways, float std)
    : forward_(parameters, both_ways ? name + ".forward" : name, cell, width, both_ways ? width / 2 : width,
               std),
      backward_(both_ways ? std::make_unique<Recurrence>(parameters, name + ".backward", cell, width,
                                                         width / 2, std)
                          : nullptr) {}

Tensor RecurrentSublayer::forward(const Tensor& x, const Context& context) const {
  const std::vector<int32_t>& offsets = context.layout.offsets;
  if (backward_ != nullptr)
    return join_columns(forward_.forward(forward_.input(x, context), {}, offsets).hidden,
                        backward_->forward(backward_->input(x, context), {}, offsets, true).hidden);
  RecurrentState* memory = forward_.state(context);
  if (memory == nullptr) return forward_.forward(forward_.input(x, context), {}, offsets).hidden;
  if (!memory->begun())
    memory->begin(Tensor::zeros({context.layout.sequences(), forward_.state_width()}, DType::f32));
  const RecurrenceResult r = forward_.forward(forward_.input(x, context), memory->last(), offsets);
  memory->append(r.states, offsets);
  return r.hidden;
}

}  // namespace qkv
