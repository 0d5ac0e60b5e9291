#include "qkv/nn/average.h"

#include "qkv/ops/running_mean.h"

namespace qkv {

Average::Average(Parameters& parameters, const std::string& name, int64_t width, InitStd std)
    : name_(name),
      width_(width),
      value_(parameters, name + ".value", width, width, true, std.inner),
      out_(parameters, name + ".out", width, width, true, std.out) {}

Tensor Average::forward(const Tensor& x, const Context& context) const {
  const std::vector<int32_t>& offsets = context.layout.offsets;
  Tensor values = value_.forward(x, context);
  context.visit(name_, ".values", values);
  RecurrentState* memory = state(context);
  if (memory == nullptr) return out_.forward(running_mean(values, offsets).mean, context);
  if (!memory->begun()) memory->begin(Tensor::zeros({memory->sequences(), width_}, DType::f32));
  std::vector<int64_t> counts;
  for (int64_t s = 0; s < memory->sequences(); ++s) counts.push_back(memory->length(s));
  const RunningMean r = running_mean(values, offsets, memory->last(), counts);
  memory->append(r.sums, offsets);
  return out_.forward(r.mean, context);
}

}  // namespace qkv
