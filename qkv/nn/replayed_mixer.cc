#include "qkv/nn/replayed_mixer.h"

#include <vector>

#include "qkv/autograd/graph.h"

namespace qkv {

Tensor ReplayedMixer::first(const Context& context) const {
  const ReplayedState* memory = state(context);
  return memory == nullptr ? Tensor() : memory->last();
}

Tensor ReplayedMixer::read(const Tensor& rows, const Context& context) const {
  const std::vector<int32_t>& offsets = context.layout.offsets;
  ReplayedState* memory = state(context);
  if (memory == nullptr) return pass(rows, {}, offsets, {}).y;
  const Pass now = pass(rows, memory->last(), offsets, memory->marks(offsets));
  memory->append(rows, now.marked, now.state, offsets);
  return now.y;
}

std::unique_ptr<ReplayedState> ReplayedMixer::make_state(int64_t sequences) const {
  const auto replay = [this](const Tensor& from, const Tensor& rows) {
    const NoGrad guard;
    const std::vector<int32_t> offsets = {0, static_cast<int32_t>(rows.dim(0))};
    return pass(rows, from, offsets, {}).state;
  };
  return std::make_unique<ReplayedState>(sequences, size().width, size().inputs, replay);
}

}  // namespace qkv
