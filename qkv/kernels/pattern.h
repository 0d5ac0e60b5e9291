// Sparse attention patterns: which of the keys that a stack allows a query sees.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace qkv {

// How many pairs of a tile's queries and keys are visible: none, some or all.
enum class TileCover : uint8_t { empty, mixed, full };

// Queries [q0, q1) and keys [k0, k1), by their positions in a sequence.
struct TileRange {
  int64_t q0, q1, k0, k1;
};

// The union of its parts. A part that is 0 is absent; without any part all keys are seen.
struct Pattern {
  int64_t window = 0;      // keys less than this many tokens away: in a decoder so many, own key included
  int64_t dilation = 1;    // the window has each n-th key, n times as far (Beltagy et al. 2020, Longformer)
  int64_t stride = 0;      // keys whose distance is a multiple of it (Child et al. 2019, strided)
  int64_t global = 0;      // this many tokens at the start see all and are seen by all
  int64_t block = 0;       // keys of the query's own block of this many tokens
  int64_t neighbours = 0;  // and of this many blocks on each side
  int64_t summary = 0;     // the last keys of each block, this many (Child et al. 2019, fixed)
  bool ends = false;   // the first and last block see all and are seen by all (Zaheer et al. 2020, BigBird)
  int64_t random = 0;  // keys of this many blocks, drawn for each block of queries; may overlap other parts
  int64_t beyond = 0;  // sequences of at most this many tokens see all keys
  // Keys of the first block count this many times for queries between the first block and the last. This is
  // Hugging Face's BigBird at inference, where all random blocks are the first block instead of drawn ones.
  int64_t first_block = 1;

  bool any() const { return window > 0 || stride > 0 || global > 0 || block > 0; }
  bool operator==(const Pattern&) const = default;

  // True if `query` sees `key`. `causal`: keys are never after the query. `length`: of the sequence.
  bool contains(int64_t query, int64_t key, int64_t length, bool causal) const {
    const int64_t distance = std::abs(query - key);
    if (window > 0 && distance < window * dilation && (dilation == 1 || distance % dilation == 0))
      return true;
    if (stride > 0 && distance % stride == 0) return true;
    if (key < global || query < global) return true;
    if (block == 0) return false;
    const int64_t q = query / block, k = key / block;
    if (std::abs(q - k) <= neighbours || key % block >= block - summary) return true;
    if (ends && (q == 0 || k == 0 || is_last(q, length, causal) || is_last(k, length, causal))) return true;
    for (int64_t i = 0; i < random; ++i)
      if (drawn(q, i, length, causal) == k) return true;
    return false;
  }

  // The cover of a tile: full if one part is full, empty if each is empty.
  TileCover cover(const TileRange& t, int64_t length, bool causal) const {
    Parts parts;
    // Distances from key to query in the tile.
    const int64_t low = t.q0 - (t.k1 - 1), high = t.q1 - 1 - t.k0;
    if (window > 0) {
      const int64_t reach = (window - 1) * dilation;
      parts.add(low <= reach && high >= -reach &&
                    has_multiple(std::max(low, -reach), std::min(high, reach), dilation),
                dilation == 1 && high <= reach && low >= -reach);
    }
    if (stride > 0) parts.add(has_multiple(low, high, stride), stride == 1);
    if (global > 0) parts.add(t.q0 < global || t.k0 < global, t.q1 <= global || t.k1 <= global);
    if (block > 0) add_blocks(t, length, causal, parts);
    return parts.full ? TileCover::full : parts.some ? TileCover::mixed : TileCover::empty;
  }

  // A lower bound of the keys that queries from q0 on see.
  int64_t first_key(int64_t q0) const {
    if (stride > 0 || global > 0 || summary > 0 || ends || random > 0) return 0;
    int64_t first = q0;
    if (window > 0) first = q0 - (window - 1) * dilation;
    // A multiple of kStep, so that tiles are whole blocks where possible.
    if (block > 0) first = std::min(first, (q0 / block - neighbours) * block) / kStep * kStep;
    return std::max<int64_t>(0, first);
  }
  // An upper bound (exclusive) of the keys that queries before q1 see, if they also look ahead.
  int64_t end_key(int64_t q1, int64_t keys) const {
    if (stride > 0 || global > 0 || summary > 0 || ends || random > 0) return keys;
    int64_t end = q1;
    if (window > 0) end = q1 + (window - 1) * dilation;
    if (block > 0) end = std::max(end, ((q1 - 1) / block + neighbours + 1) * block);
    return std::min(keys, end);
  }
  // How many times a key counts for a query that sees it.
  int64_t times(int64_t query, int64_t key, int64_t length) const {
    if (first_block == 1 || key >= block) return 1;
    const int64_t q = query / block;
    return q > 0 && !is_last(q, length, false) ? first_block : 1;
  }

  // True if block b is the last. With `causal` the sequence may still grow, so no block is.
  bool is_last(int64_t b, int64_t length, bool causal) const { return !causal && b == (length - 1) / block; }
  // The i-th block drawn for block q of queries; in a decoder it is at most q.
  int64_t drawn(int64_t q, int64_t i, int64_t length, bool causal) const {
    auto x =
        static_cast<uint64_t>(q) * 0x9E3779B97F4A7C15U + static_cast<uint64_t>(i + 1) * 0xD1B54A32D192ED03U;
    x = (x ^ (x >> 31)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return static_cast<int64_t>((x ^ (x >> 31)) %
                                static_cast<uint64_t>(causal ? q + 1 : (length - 1) / block + 1));
  }

 private:
  static constexpr int64_t kStep = 64;
  struct Parts {
    bool some = false, full = false;
    void add(bool in_some, bool in_all) {
      some |= in_some;
      full |= in_all;
    }
  };

  // True if [low, high] has a multiple of n.
  static bool has_multiple(int64_t low, int64_t high, int64_t n) {
    if (low > high) return false;
    if (low <= 0 && high >= 0) return true;
    const int64_t near = std::min(std::abs(low), std::abs(high)),
                  far = std::max(std::abs(low), std::abs(high));
    return far / n * n >= near;
  }

  void add_blocks(const TileRange& t, int64_t length, bool causal, Parts& parts) const {
    const int64_t first_q = t.q0 / block, last_q = (t.q1 - 1) / block, first_k = t.k0 / block,
                  last_k = (t.k1 - 1) / block;
    parts.add(first_k - last_q <= neighbours && first_q - last_k <= neighbours,
              last_k - first_q <= neighbours && last_q - first_k <= neighbours);
    if (summary > 0) {
      const int64_t from = block - summary;  // within a block
      parts.add(last_k > first_k || (t.k1 - 1) % block >= from, last_k == first_k && t.k0 % block >= from);
    }
    if (ends) {
      parts.add(
          first_q == 0 || first_k == 0 || is_last(last_q, length, causal) || is_last(last_k, length, causal),
          last_q == 0 || last_k == 0 || is_last(first_q, length, causal) || is_last(first_k, length, causal));
    }
    for (int64_t q = first_q; q <= last_q && random > 0; ++q)
      for (int64_t i = 0; i < random; ++i) {
        const int64_t k = drawn(q, i, length, causal);
        parts.add(first_k <= k && k <= last_k, first_q == last_q && first_k == k && last_k == k);
      }
    // Scores of keys that count several times must be raised, so their tile is not full.
    if (first_block > 1 && first_k == 0) parts.full = false;
  }
};

}  // namespace qkv
