#include "qkv/data/masking.h"

#include <algorithm>

#include "qkv/base/rng.h"

namespace qkv {
namespace {

constexpr uint32_t kMaskSite = 0x6d61736b;   // "mask"
constexpr uint32_t kOrderSite = 0x6f726472;  // "ordr"
constexpr uint32_t kPairSite = 0x70616972;   // "pair"

// Turns a batch with targets in place into one with an added row for each target, after its sequence.
// place[r]: position of row r in the stream, by which `random` determines the order.
Batch permuted(const Batch& shown, std::span<const int64_t> places, int32_t mask,
               const RandomStream& random) {
  const auto given = shown.ids.values(), target = shown.targets.values();
  std::vector<int32_t> ids, positions, targets, lengths, query_ranks, key_ranks;
  const auto put = [&](int32_t id, int32_t position, int32_t wanted, int32_t query_rank, int32_t key_rank) {
    ids.push_back(id);
    positions.push_back(position);
    targets.push_back(wanted);
    query_ranks.push_back(query_rank);
    key_ranks.push_back(key_rank);
  };
  for (size_t s = 0; s + 1 < shown.layout.offsets.size(); ++s) {
    const int32_t begin = shown.layout.offsets[s], end = shown.layout.offsets[s + 1];
    std::vector<int32_t> order;  // rows to predict
    for (int32_t r = begin; r < end; ++r)
      if (target[r] != kIgnored) order.push_back(r);
    const auto key = [&](int32_t r) { return random.uniform(static_cast<uint64_t>(places[r])); };
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return key(a) < key(b); });
    std::vector<int32_t> rank(end - begin, 0);
    for (size_t i = 0; i < order.size(); ++i) rank[order[i] - begin] = static_cast<int32_t>(i) + 1;
    for (int32_t r = begin; r < end; ++r) {
      const int32_t known = rank[r - begin];
      put(given[r], r - begin, kIgnored, known, known);
    }
    for (const int32_t r : order) put(mask, r - begin, target[r], rank[r - begin] - 1, kUnseen);
    lengths.push_back(end - begin + static_cast<int32_t>(order.size()));
  }
  Batch b;
  b.ids = std::move(ids);
  b.layout = Layout::of(lengths);
  b.layout.positions = std::move(positions);
  b.visibility = {std::move(query_ranks), std::move(key_ranks)};
  b.targets = std::move(targets);
  b.target_count = shown.target_count;
  return b;
}

// The texts of a sequence.
struct Texts {
  Piece first, second = {0, 0};
  int32_t follows = kIgnored;  // kNextText or kOtherText
};

// Piece i in two parts, or its first part and the second part of another piece. A piece of one token is not
// divided.
Texts two_texts(std::span<const Piece> pieces, size_t i, uint64_t seed, uint64_t draw) {
  const auto middle = [](const Piece& p) { return p.begin + (p.end - p.begin + 1) / 2; };
  const Piece& p = pieces[i];
  Texts own{{p.begin, middle(p)}, {middle(p), p.end}, kNextText};
  if (own.second.begin == own.second.end) return {p};
  const RandomStream random{seed, draw, kPairSite};
  const auto place = 2 * static_cast<uint64_t>(p.begin);
  if (pieces.size() < 2 || random.uniform(place) < 0.5) return own;
  const size_t other = (i + 1 + random.below(place + 1, pieces.size() - 1)) % pieces.size();
  if (middle(pieces[other]) == pieces[other].end) return own;
  return {own.first, {middle(pieces[other]), pieces[other].end}, kOtherText};
}

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
  std::vector<int32_t> ids, targets, segments, lengths, follows;
  int64_t count = 0;
  size_t word_begin = 0, word_end = 0;  // rows of the last word that may be hidden
  // Each position has three random numbers: is it hidden, how, and by which token.
  std::vector<int64_t> places;  // position of each row in the stream; -1: a special token around a piece
  const auto hide = [&](size_t row) {
    const int64_t at = places[row];
    targets[row] = tokens[at];
    ++count;
    if (masking.permuted) return;
    const double what = random.uniform(3 * static_cast<uint64_t>(at) + 1);
    if (what < masking.keep) return;
    if (what >= masking.keep + masking.random) {
      ids[row] = masking.mask;
      return;
    }
    const uint64_t drawn = random.below(3 * static_cast<uint64_t>(at) + 2, masking.vocab_size);
    if (!has(masking.special, static_cast<int32_t>(drawn))) ids[row] = static_cast<int32_t>(drawn);
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    const size_t begin = ids.size();
    Texts read{pieces[i]};
    if (masking.next_sentence) read = two_texts(pieces, i, seed, draw);
    follows.push_back(read.follows);
    int32_t segment = 0;
    const auto put = [&](int32_t id, int64_t place) {
      ids.push_back(id);
      targets.push_back(kIgnored);
      segments.push_back(segment);
      places.push_back(place);
    };
    if (ends.first >= 0) put(ends.first, -1);
    for (const Piece& p : {read.first, read.second}) {
      if (p.begin == p.end) continue;
      bool inside = false, hidden = false;  // inside a word; inside a hidden word
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
      segment = 1;
    }
    lengths.push_back(static_cast<int32_t>(ids.size() - begin));
  }
  if (count == 0)
    for (size_t row = word_begin; row < word_end; ++row) hide(row);
  Batch b;
  b.ids = std::move(ids);
  b.layout = Layout::of(lengths);
  b.targets = std::move(targets);
  b.target_count = count;
  if (masking.next_sentence) {
    b.segments = std::move(segments);
    b.sequence_targets = std::move(follows);
  }
  return masking.permuted ? permuted(b, places, masking.mask, {seed, draw, kOrderSite}) : b;
}

}  // namespace qkv
