#include "qkv/data/masking.h"

namespace qkv {
namespace {

constexpr uint32_t kMaskSite = 0x6d61736b;  // "mask"

}  // namespace

std::vector<Piece> pieces_of(const TokenStream& stream, int64_t length) {
  check(length > 0, "pieces of {} tokens", length);
  std::vector<Piece> out;
  const auto starts = stream.starts();
  for (size_t d = 0; d + 1 < starts.size(); ++d)
    for (int64_t at = starts[d]; at < starts[d + 1]; at += length)
      out.push_back({at, std::min(at + length, starts[d + 1])});
  return out;
}

Batch masked_batch(const TokenStream& stream, std::span<const Piece> pieces, Surroundings ends,
                   const Masking& masking, uint64_t seed, uint64_t draw) {
  const RandomStream random{seed, draw, kMaskSite};
  const auto tokens = stream.tokens();
  const auto has = [](const std::vector<bool>& set, int32_t id) {
    return static_cast<size_t>(id) < set.size() && set[id];
  };
  std::vector<int32_t> ids, targets, lengths;
  int64_t count = 0, fallback = -1;  // a row that may be hidden
  // Three numbers a place: whether it is hidden, by what, by which token.
  const auto hide = [&](int64_t at, size_t row) {
    targets[row] = tokens[at];
    ++count;
    const double what = random.uniform(3 * static_cast<uint64_t>(at) + 1);
    if (what < masking.keep) return;
    if (what >= masking.keep + masking.random) {
      ids[row] = masking.mask;
      return;
    }
    const uint64_t drawn = random.below(3 * static_cast<uint64_t>(at) + 2, masking.vocab_size);
    if (!has(masking.special, static_cast<int32_t>(drawn))) ids[row] = static_cast<int32_t>(drawn);
  };
  std::vector<int64_t> places;  // in the stream, of each row; -1: an end
  for (const Piece& p : pieces) {
    const size_t begin = ids.size();
    const auto put = [&](int32_t id, int64_t place) {
      ids.push_back(id);
      targets.push_back(kIgnored);
      places.push_back(place);
    };
    if (ends.first >= 0) put(ends.first, -1);
    bool hidden = false;  // the word before
    for (int64_t at = p.begin; at < p.end; ++at) {
      put(tokens[at], at);
      if (has(masking.special, tokens[at])) {
        hidden = false;
        continue;
      }
      const bool goes_on = masking.whole_words && at > p.begin && has(masking.inner, tokens[at]);
      if (!goes_on) hidden = random.uniform(3 * static_cast<uint64_t>(at)) < masking.rate;
      fallback = static_cast<int64_t>(ids.size()) - 1;
      if (hidden) hide(at, ids.size() - 1);
    }
    if (ends.last >= 0) put(ends.last, -1);
    lengths.push_back(static_cast<int32_t>(ids.size() - begin));
  }
  if (count == 0 && fallback >= 0) hide(places[fallback], static_cast<size_t>(fallback));
  Batch b;
  b.ids = Tensor::of({std::ssize(ids)}, ids);
  b.layout = Layout::of(lengths);
  b.targets = Tensor::of({std::ssize(targets)}, targets);
  b.target_count = count;
  return b;
}

}  // namespace qkv
