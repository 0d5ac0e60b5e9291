// Which keys a query sees: a small value that can speak about whole tiles, so that empty tiles cost nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace qkv {

// Whether no, some or every query of a tile may attend to its keys.
enum class TileCover : uint8_t { empty, mixed, full };

// Mask[t_z, t_x] of Phuong & Hutter, eq. (3). Positions count from 0 within a sequence; a query's position
// counts the cached keys before it.
struct Mask {
  enum class Kind : uint8_t {
    full,    // bidirectional: 1
    causal,  // unidirectional: [[t_z <= t_x]]
    ranked,  // [[key_rank[t_z] <= query_rank[t_x]]]
  };
  Kind kind = Kind::full;
  const int32_t* query_rank = nullptr;  // of ranked, by position
  const int32_t* key_rank = nullptr;
  int64_t window = 0;  // of causal: a query sees so many keys, its own the last; 0: all before it

  static Mask full() { return {Kind::full}; }
  static Mask causal() { return {Kind::causal}; }
  static Mask sliding(int64_t window) { return {Kind::causal, nullptr, nullptr, window}; }

  bool allows(int64_t query, int64_t key) const {
    if (kind == Kind::ranked) return key_rank[key] <= query_rank[query];
    return kind == Kind::full || (key <= query && (window == 0 || key > query - window));
  }

  // Of queries [q0, q1) and keys [k0, k1).
  TileCover cover(int64_t q0, int64_t q1, int64_t k0, int64_t k1) const {
    if (kind == Kind::ranked) {
      const auto [q_least, q_most] = std::minmax_element(query_rank + q0, query_rank + q1);
      const auto [k_least, k_most] = std::minmax_element(key_rank + k0, key_rank + k1);
      if (*k_most <= *q_least) return TileCover::full;
      return *k_least > *q_most ? TileCover::empty : TileCover::mixed;
    }
    if (kind == Kind::full) return TileCover::full;
    if (k0 > q1 - 1 || (window > 0 && k1 - 1 <= q0 - window)) return TileCover::empty;
    const bool far = window > 0 && k0 <= q1 - 1 - window;
    return k1 - 1 <= q0 && !far ? TileCover::full : TileCover::mixed;
  }
  // The keys [begin, end) of [0, keys) that queries [q0, q1) can see any of.
  int64_t first_key(int64_t q0) const { return window == 0 ? 0 : std::max<int64_t>(0, q0 - window + 1); }
  int64_t end_key(int64_t q1, int64_t keys) const { return kind == Kind::causal ? std::min(keys, q1) : keys; }
};

// What is added to the scaled scores before the softmax: for each head a number for each distance from key to
// query, as a row of 2 reach + 1 numbers, that of distance 0 in the middle.
struct ScoreTerm {
  const float* bias = nullptr;  // [heads, 2 reach + 1]; null: nothing is added
  int64_t reach = 0;            // the largest distance

  bool on() const { return bias != nullptr; }
  int64_t row() const { return 2 * reach + 1; }
  // Where head h's number for a query and a key stands.
  int64_t at(int64_t head, int64_t query, int64_t key) const { return head * row() + reach + query - key; }
};

}  // namespace qkv
