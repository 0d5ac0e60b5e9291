// Which keys a query sees. A mask can be asked about whole tiles, so that empty tiles cost nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "qkv/kernels/pattern.h"

namespace qkv {

// Mask[t_z, t_x] of Phuong & Hutter, eq. (3). Positions count from 0 within a sequence; a query's position
// counts the cached keys before it.
struct Mask {
  enum class Kind : uint8_t {
    full,    // bidirectional: 1
    causal,  // unidirectional: [[t_z <= t_x]]
    ranked,  // [[key_rank[t_z] <= query_rank[t_x]]]
    table,   // [[table[t_x, t_z] != 0]]; has neither a pattern nor own_last
  };
  Kind kind = Kind::full;
  const int32_t* query_rank = nullptr;  // for ranked: ranks by position
  const int32_t* key_rank = nullptr;
  const int32_t* table = nullptr;  // for table: [keys, keys], a row for each query
  Pattern pattern = {};            // restricts the keys
  // For full with a pattern: the number of global tokens, which see all and are seen by all, before each
  // position and before the end; or null.
  const int32_t* globals = nullptr;
  int64_t length = 0;  // length of the sequence, or of its padded batch if patterns depend on that
  int64_t keys = 0;    // keys that the sequence has
  // In self-attention a query sees its own key only if it sees no other (Kitaev et al. 2020, Reformer).
  bool own_last = false;

  static Mask full() { return {Kind::full}; }
  static Mask causal() { return {Kind::causal}; }
  static Mask sliding(int64_t window) { return causal().with({.window = window}); }
  // This mask, restricted to the pattern's keys.
  Mask with(const Pattern& p) const {
    Mask mask = *this;
    mask.pattern = p;
    return mask;
  }
  // The mask of one sequence of n tokens, without the pattern if the sequence is too short for it
  // (Pattern::beyond). `padded`: the length that patterns see.
  Mask of_length(int64_t n, int64_t padded) const {
    Mask mask = *this;
    if (padded <= pattern.beyond) mask.pattern = {};
    mask.length = padded;
    mask.keys = n;
    return mask;
  }
  Mask of_length(int64_t n) const { return of_length(n, n); }

  bool is_causal() const { return kind == Kind::causal; }
  // True if the batch says which tokens see each other.
  bool is_given() const { return kind == Kind::ranked || kind == Kind::table; }
  // True if only the distance between query and key decides.
  bool by_distance() const {
    return !is_given() && pattern.global == 0 && pattern.block == 0 && globals == nullptr && !own_last;
  }
  bool allows(int64_t query, int64_t key) const {
    return own_last && query == key ? !sees_another(query) : reaches(query, key);
  }
  // True if some keys count several times. raise() is the logarithm of that number, which is added to a
  // visible score.
  bool counts() const { return pattern.first_block > 1; }
  float raise(int64_t query, int64_t key) const {
    return std::log(static_cast<float>(pattern.times(query, key, length)));
  }

  // The cover of queries [q0, q1) and keys [k0, k1).
  TileCover cover(int64_t q0, int64_t q1, int64_t k0, int64_t k1) const {
    const TileCover all = reach(q0, q1, k0, k1);
    return own_last && all == TileCover::full && q0 < k1 && k0 < q1 ? TileCover::mixed : all;
  }
  // The first tile of keys at k0, k0 + step, ... that has a key which queries [q0, q1) see; at `end` if
  // none has.
  struct Tile {
    int64_t k0;
    TileCover cover;
  };
  Tile next_tile(int64_t q0, int64_t q1, int64_t k0, int64_t end, int64_t step) const {
    for (; k0 < end; k0 += step)
      if (const TileCover c = cover(q0, q1, k0, std::min(end, k0 + step)); c != TileCover::empty)
        return {k0, c};
    return {end, TileCover::empty};
  }
  // Queries [q0, q1) see only keys in [first_key(q0), end_key(q1, keys)).
  int64_t first_key(int64_t q0) const {
    return pattern.any() && globals == nullptr ? pattern.first_key(q0) : 0;
  }
  int64_t end_key(int64_t q1, int64_t keys) const {
    if (kind == Kind::causal) return std::min(keys, q1);
    return pattern.any() && globals == nullptr ? pattern.end_key(q1, keys) : keys;
  }

 private:
  // allows() and cover() without own_last.
  bool reaches(int64_t query, int64_t key) const {
    if (kind == Kind::table) return table[query * keys + key] != 0;
    if (kind == Kind::ranked)
      return key_rank[key] <= query_rank[query] &&
             (!pattern.any() || pattern.contains(query, key, length, false));
    if (is_causal() && key > query) return false;
    if (globals != nullptr && (globals_in(query, query + 1) > 0 || globals_in(key, key + 1) > 0)) return true;
    return !pattern.any() || pattern.contains(query, key, length, is_causal());
  }
  TileCover reach(int64_t q0, int64_t q1, int64_t k0, int64_t k1) const {
    if (kind == Kind::table) {
      const int64_t seen = table_in(q0, q1, k0, k1);
      if (seen == 0) return TileCover::empty;
      return seen == (q1 - q0) * (k1 - k0) ? TileCover::full : TileCover::mixed;
    }
    if (kind == Kind::ranked) {
      const auto [q_least, q_most] = std::minmax_element(query_rank + q0, query_rank + q1);
      const auto [k_least, k_most] = std::minmax_element(key_rank + k0, key_rank + k1);
      if (pattern.any()) return TileCover::mixed;  // who asks for both has few tokens
      if (*k_most <= *q_least) return TileCover::full;
      return *k_least > *q_most ? TileCover::empty : TileCover::mixed;
    }
    if (is_causal() && k0 > q1 - 1) return TileCover::empty;
    TileCover part = pattern.any() ? pattern.cover({q0, q1, k0, k1}, length, is_causal()) : TileCover::full;
    if (globals != nullptr && part != TileCover::full) {
      const int64_t of_queries = globals_in(q0, q1), of_keys = globals_in(k0, k1);
      if (of_queries + of_keys > 0) part = TileCover::mixed;
      const bool all = of_queries == q1 - q0 || of_keys == k1 - k0;
      if (all && !counts()) part = TileCover::full;
    }
    return part == TileCover::full && is_causal() && k1 - 1 > q0 ? TileCover::mixed : part;
  }
  bool sees_another(int64_t query) const {
    for (int64_t key = query - 1; key >= 0; --key)
      if (reaches(query, key)) return true;
    for (int64_t key = query + 1; key < keys; ++key)
      if (reaches(query, key)) return true;
    return false;
  }
  // How many of these keys these queries see by the table.
  int64_t table_in(int64_t q0, int64_t q1, int64_t k0, int64_t k1) const {
    int64_t seen = 0;
    for (int64_t q = q0; q < q1; ++q)
      for (int64_t k = k0; k < k1; ++k) seen += table[q * keys + k] != 0;
    return seen;
  }
  int64_t globals_in(int64_t begin, int64_t end) const { return globals[end] - globals[begin]; }
};

// A bias by distance, added to the scaled scores before the softmax. Each head has a row of 2 reach + 1
// numbers, one for each distance from key to query, with distance 0 in the middle.
struct ScoreTerm {
  const float* bias = nullptr;  // [heads, 2 reach + 1]; null: nothing is added
  int64_t reach = 0;            // the largest distance

  bool on() const { return bias != nullptr; }
  int64_t row() const { return 2 * reach + 1; }
  // Index in bias of a head's number for a query and a key.
  int64_t at(int64_t head, int64_t query, int64_t key) const { return head * row() + reach + query - key; }
};

}  // namespace qkv
