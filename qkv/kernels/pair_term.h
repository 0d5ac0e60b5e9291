// The term that relative encodings add to the score of a query and a key: numbers from rows of either.
#pragma once

#include <cstdint>

namespace qkv {

// by_query[row of i, head, column(i - j)] + by_key[row of j, head, column(i - j)]
//   + by_segment[row of i, head, segments of i and j differ]
// for query i and key j of one sequence, by their positions. Rows of queries are those of the flat batch,
// rows of keys are those of k.
struct PairTerm {
  const int32_t* columns = nullptr;   // [2 reach + 1]: columns of distances -reach to reach
  int64_t reach = 0;                  // the largest distance
  int64_t width = 0;                  // columns of by_query and by_key
  const float* by_query = nullptr;    // [queries, heads, width]; or null
  const float* by_key = nullptr;      // [rows of k, heads, width]; or null
  const float* by_segment = nullptr;  // [queries, heads, 2]; or null
  const int32_t* segments = nullptr;  // [rows], of queries and keys alike
  // [rows], of queries and keys alike: positions, if a sequence's rows are not in the order of its tokens;
  // or null.
  const int32_t* positions = nullptr;

  bool on() const { return by_query != nullptr || by_key != nullptr || by_segment != nullptr; }
};

// A query and a key by their rows, and by their distance.
struct Pair {
  int64_t query_row, key_row, distance, head, heads;
};

// Calls f(entry) for each table entry that is part of a pair's term. The tables are those of `term`, or
// others of the same shapes.
template <typename Table, typename F>
inline void for_pair(const PairTerm& term, const Pair& p, Table by_query, Table by_key, Table by_segment,
                     const F& f) {
  const int64_t query = p.query_row * p.heads + p.head, key = p.key_row * p.heads + p.head;
  const int64_t distance =
      term.positions ? term.positions[p.query_row] - term.positions[p.key_row] : p.distance;
  const int32_t column = term.columns ? term.columns[term.reach + distance] : 0;
  if (by_query) f(by_query[query * term.width + column]);
  if (by_key) f(by_key[key * term.width + column]);
  if (by_segment) f(by_segment[query * 2 + (term.segments[p.query_row] != term.segments[p.key_row])]);
}

// The term of a pair.
inline float value_at(const PairTerm& term, const Pair& p) {
  float sum = 0;
  for_pair(term, p, term.by_query, term.by_key, term.by_segment, [&](float x) { sum += x; });
  return sum;
}

// Sums of the gradients of a term's tables; null: not wanted.
struct PairTermGrad {
  float *by_query = nullptr, *by_key = nullptr, *by_segment = nullptr;

  bool on() const { return by_query != nullptr || by_key != nullptr || by_segment != nullptr; }
};
// Adds the gradient of one pair's score.
inline void add_at(const PairTermGrad& grad, const PairTerm& term, const Pair& p, float ds) {
  for_pair(term, p, grad.by_query, grad.by_key, grad.by_segment, [&](float& x) { x += ds; });
}

}  // namespace qkv
