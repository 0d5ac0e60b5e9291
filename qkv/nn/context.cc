#include "qkv/nn/context.h"

#include <limits>

namespace qkv {

Layout Layout::of(const std::vector<int32_t>& lengths, const std::vector<int32_t>& starts) {
  Layout layout;
  std::vector<int32_t> positions;
  for (size_t s = 0; s < lengths.size(); ++s) {
    check(lengths[s] >= 0, "layout: sequence {} has negative length {}", s, lengths[s]);
    check(lengths[s] <= std::numeric_limits<int32_t>::max() - layout.offsets.back(),
          "layout: more than 2^31 tokens in a batch");
    for (int32_t i = 0; i < lengths[s]; ++i) positions.push_back((starts.empty() ? 0 : starts[s]) + i);
    layout.offsets.push_back(layout.offsets.back() + lengths[s]);
  }
  layout.positions = Tensor::of({static_cast<int64_t>(positions.size())}, positions);
  return layout;
}

}  // namespace qkv
