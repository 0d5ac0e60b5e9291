#include "qkv/batch/layout.h"

#include <limits>
#include <utility>

#include "qkv/base/error.h"

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
  layout.positions = std::move(positions);
  return layout;
}

Visibility prefix_ranks(const Layout& layout, std::span<const int32_t> prefixes) {
  check(std::ssize(prefixes) == layout.sequences(), "prefix LM: {} sequences, got {} prefixes",
        layout.sequences(), prefixes.size());
  std::vector<int32_t> ranks;
  for (size_t s = 0; s < prefixes.size(); ++s) {
    const int32_t length = layout.offsets[s + 1] - layout.offsets[s];
    for (int32_t t = 0; t < length; ++t) ranks.push_back(t < prefixes[s] ? 0 : t);
  }
  const Indices both = std::move(ranks);
  return {both, both};
}

Visibility ranks_without(const Indices& ids, int32_t mask) {
  std::vector<int32_t> ranks;
  for (const int32_t id : ids.values()) ranks.push_back(id == mask ? kUnseen : 0);
  return {Indices::zeros(ids.count()), std::move(ranks)};
}

}  // namespace qkv
