#include "qkv/nn/token_shift.h"

#include <cmath>
#include <vector>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/short_convolution.h"
#include "qkv/ops/token_shift.h"

namespace qkv {
namespace {

constexpr int64_t kKernel = 2;  // a convolution that sees a row and the one before it

}  // namespace

Tensor TokenShift::before(const Tensor& x, const Context& context) const {
  const std::vector<int32_t>& offsets = context.layout.offsets;
  ReplayedState* memory = state(context);
  if (memory == nullptr) return previous_rows(x, {}, offsets);
  const Tensor first = memory->last();
  std::vector<int32_t> all;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) all.push_back(offsets[s + 1] - offsets[s]);
  memory->append(x, convolution_tail(x, first, offsets, memory->marks(offsets), kKernel),
                 convolution_tail(x, first, offsets, all, kKernel), offsets);
  return previous_rows(x, first, offsets);
}

std::unique_ptr<ReplayedState> TokenShift::make_state(int64_t sequences) const {
  const auto replay = [](const Tensor& /*from*/, const Tensor& rows) {
    return convert(rows.slice_rows(rows.dim(0) - 1, rows.dim(0)), DType::f32);
  };
  return std::make_unique<ReplayedState>(sequences, width_, width_, replay);
}

Parameter& add_shift(Parameters& parameters, const std::string& name, int64_t width, float power) {
  Initializer listed{.kind = Initializer::Kind::listed};
  for (int64_t c = 0; c < width; ++c)
    listed.values.push_back(1 - std::pow(static_cast<float>(c) / static_cast<float>(width), power));
  return parameters.add(name, {width}, ParameterKind::vector, std::move(listed));
}

}  // namespace qkv
