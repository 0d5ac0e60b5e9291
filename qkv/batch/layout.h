// The places of a flat batch's sequences, and the order in which their tokens see each other.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "qkv/tensor/indices.h"

namespace qkv {

// The places of the sequences in a flat batch: sequence s has the rows [offsets[s], offsets[s + 1]). There is
// no padding.
struct Layout {
  std::vector<int32_t> offsets = {0};  // [sequences + 1]
  Indices positions;                   // [N], counted from 0 in each sequence
  // The length of the padded batch that this was, for patterns that look at it; 0: each sequence has its own.
  int64_t padded_length = 0;

  int64_t rows() const { return offsets.back(); }
  int64_t sequences() const { return static_cast<int64_t>(offsets.size()) - 1; }
  // Sequences of these lengths, each starting at position `starts[s]` (0 where not given).
  static Layout of(const std::vector<int32_t>& lengths, const std::vector<int32_t>& starts = {});
};

// The rank of a key that no query sees.
inline constexpr int32_t kUnseen = std::numeric_limits<int32_t>::max();

// The tokens of a flat batch that see each other. An order says it, in which a query sees the keys of its
// sequence whose rank is at most its own. Or a table does.
struct Visibility {
  Indices query = {}, key = {};  // [N] ranks; undefined: there is no such order
  // For each sequence of n tokens in turn n rows of n flags: 1 for a key that the row's query sees, else 0.
  // Undefined: ranks decide.
  Indices table = {};

  bool ranked() const { return query.defined() || key.defined(); }
  bool defined() const { return ranked() || table.defined(); }
};

// The order of a prefix LM (Liu et al. 2018; Raffel et al. 2020): the first prefixes[s] tokens of sequence s
// see each other, the others also those before them.
Visibility prefix_ranks(const Layout& layout, std::span<const int32_t> prefixes);

// That of a permutation LM in use: every token of ids [N] sees all but those that are `mask`.
Visibility ranks_without(const Indices& ids, int32_t mask);

}  // namespace qkv
