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
  int64_t count = 0;
  size_t word_begin = 0, word_end = 0;  // rows of the last word that may be hidden
  // Three numbers a place: whether it is hidden, by what, by which token.
  std::vector<int64_t> places;  // in the stream, of each row; -1: an end
  const auto hide = [&](size_t row) {
    const int64_t at = places[row];
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
  for (const Piece& p : pieces) {
    const size_t begin = ids.size();
    const auto put = [&](int32_t id, int64_t place) {
      ids.push_back(id);
      targets.push_back(kIgnored);
      places.push_back(place);
    };
    if (ends.first >= 0) put(ends.first, -1);
    bool inside = false, hidden = false;  // a word; one that is hidden
    for (int64_t at = p.begin; at < p.end; ++at) {
      const size_t row = ids.size();
      put(tokens[at], at);
      if (has(masking.special, tokens[at])) {
        inside = false;
        continue;
      }
      if (!(inside && masking.whole_words && has(masking.inner, tokens[at]))) {
        hidden = random.uniform(3 * static_cast<uint64_t>(at)) < masking.rate;
        word_begin = row;
      }
      inside = true;
      word_end = row + 1;
      if (hidden) hide(row);
    }
    if (ends.last >= 0) put(ends.last, -1);
    lengths.push_back(static_cast<int32_t>(ids.size() - begin));
  }
  if (count == 0)
    for (size_t row = word_begin; row < word_end; ++row) hide(row);
  Batch b;
  b.ids = Tensor::of({std::ssize(ids)}, ids);
  b.layout = Layout::of(lengths);
  b.targets = Tensor::of({std::ssize(targets)}, targets);
  b.target_count = count;
  return b;
}

}  // namespace qkv
