#include "qkv/nn/streams.h"

namespace qkv {

void load_streams(const SegmentStates& states, const Batch& batch) {
  states.reorder(batch.windows);
  for (size_t s = 0; s < batch.continues.size(); ++s)
    if (!batch.continues[s]) states.truncate(static_cast<int64_t>(s), 0);
}

void store_streams(const SegmentStates& states, const Batch& batch) {
  std::vector<int32_t> last;  // sequence of each window
  for (size_t s = 0; s < batch.windows.size(); ++s)
    if (s + 1 == batch.windows.size() || batch.windows[s + 1] != batch.windows[s])
      last.push_back(static_cast<int32_t>(s));
  for (const auto& state : states.all()) state->advance();
  states.reorder(last);
}

}  // namespace qkv
