#include "qkv/ops/attention_arguments.h"

#include <algorithm>
#include <cmath>

#include "qkv/ops/dispatch.h"

namespace qkv {

namespace {

void check_heads(const char* what, const Heads& h, DType dtype) {
  check(h.x.defined() && h.x.shape().rank() == 2 && h.heads > 0 && h.width > 0 && h.column >= 0 &&
            h.column + h.heads * h.width <= h.x.width(),
        "attention: {} needs {} heads of {} columns from column {}, got {}", what, h.heads, h.width, h.column,
        h.x);
  expect_dtype("attention", what, h.x, dtype);
}

void check_layout(const Heads& q, const Heads& k, std::span<const int32_t> offsets, const KeyLayout& keys) {
  check(offsets.size() == keys.lengths.size() + 1 && offsets.front() == 0 && offsets.back() == q.x.rows(),
        "attention: offsets of {} sequences do not divide {} queries", keys.lengths.size(), q.x.rows());
  check(keys.block_offsets.size() == keys.lengths.size() && keys.block_rows > 0,
        "attention: {} sequences need as many block offsets, got {}", keys.lengths.size(),
        keys.block_offsets.size());
  for (size_t s = 0; s < keys.lengths.size(); ++s) {
    check(offsets[s] <= offsets[s + 1], "attention: offsets must not decrease (sequence {})", s);
    for (int64_t first = 0, block = keys.block_offsets[s]; first < keys.lengths[s];
         first += keys.block_rows, ++block) {
      const int64_t rows = std::min<int64_t>(keys.block_rows, keys.lengths[s] - first);
      check(block < static_cast<int64_t>(keys.blocks.size()) && keys.blocks[block] >= 0 &&
                keys.blocks[block] + rows <= k.x.rows(),
            "attention: keys of sequence {} lie outside the {} rows of k", s, k.x.rows());
    }
  }
}

void check_pair(const Heads& q, const Heads& k, const PairTables& pair, int64_t longest) {
  if (pair.columns.defined()) {
    check(pair.columns.count() % 2 == 1 &&
              (pair.positions.defined() || pair.columns.count() / 2 >= longest - 1),
          "attention: columns of {} distances do not fit {} keys", pair.columns.count(), longest);
  }
  int64_t width = 0;
  const auto by_distance = [&](const char* name, const Tensor& table, int64_t rows) {
    if (!table.defined()) return;
    check(pair.columns.defined() && table.shape().rank() == 2 && table.rows() == rows &&
              table.width() % q.heads == 0 && (width == 0 || table.width() == width),
          "attention: {} {} does not fit {} rows and {} heads", name, table.shape(), rows, q.heads);
    expect_dtype("attention", name, table, DType::f32);
    width = table.width();
  };
  by_distance("by_query", pair.by_query, q.x.rows());
  by_distance("by_key", pair.by_key, k.x.rows());
  for (const int32_t c : width > 0 ? pair.columns.values() : Span<const int32_t>())
    check(c >= 0 && c < width / q.heads, "attention: a distance of column {} of {}", c, width / q.heads);
  const auto of_rows = [&](const char* name, const Indices& x) {
    check(x.count() == q.x.rows() && k.x.rows() == q.x.rows(),
          "attention: {} queries and {} keys need as many {}", q.x.rows(), k.x.rows(), name);
  };
  if (pair.positions.defined()) {
    check(pair.columns.defined(), "attention: positions need columns of distances");
    of_rows("positions", pair.positions);
    for (const int32_t p : pair.positions.values())
      check(p >= 0 && p <= pair.columns.count() / 2, "attention: position {} beyond distances of {}", p,
            pair.columns.count() / 2);
  }
  if (!pair.by_segment.defined()) return;
  check(pair.segments.defined(), "attention: by_segment needs segments");
  of_rows("segments", pair.segments);
  expect_shape("attention", "by_segment", pair.by_segment, {q.x.rows(), 2 * q.heads});
  expect_dtype("attention", "by_segment", pair.by_segment, DType::f32);
}

}  // namespace

void check_attention(const Heads& q, const Heads& k, const Heads& v, std::span<const int32_t> offsets,
                     const KeyLayout& keys, const AttentionOptions& options) {
  check_heads("q", q, q.x.dtype());
  check_heads("k", k, q.x.dtype());
  check_heads("v", v, q.x.dtype());
  check(k.width == q.width && k.heads == v.heads && q.heads % k.heads == 0 && k.x.rows() == v.x.rows(),
        "attention: {} query heads of {} do not fit {} key heads of {} and {} value heads, {} and {} rows",
        q.heads, q.width, k.heads, k.width, v.heads, k.x.rows(), v.x.rows());
  check_layout(q, k, offsets, keys);
  check(!options.mask.is_given(), "attention: the visibility of tokens is an option of its own");
  const Visibility& visibility = options.visibility;
  if (visibility.defined()) {
    int64_t pairs = 0;
    for (size_t s = 0; s < keys.lengths.size(); ++s) {
      check(keys.lengths[s] == offsets[s + 1] - offsets[s],
            "attention: sequence {} has a visibility of {} queries, and {} keys", s,
            offsets[s + 1] - offsets[s], keys.lengths[s]);
      pairs += int64_t{keys.lengths[s]} * keys.lengths[s];
    }
    check(!visibility.table.defined() || (!visibility.ranked() && visibility.table.count() == pairs),
          "attention: {} pairs of tokens need a table of as many flags, and no ranks, got {}", pairs,
          visibility.table.count());
    check(!visibility.table.defined() || !options.mask.own_last,
          "attention: a table of visible keys does not go with shared queries and keys");
    for (const Indices* ranks : {&visibility.query, &visibility.key})
      check(visibility.table.defined() || (ranks->defined() && ranks->count() == q.x.rows()),
            "attention: {} queries need as many ranks of queries and of keys", q.x.rows());
  }
  if (options.globals.defined()) {
    const auto counts = options.globals.values();
    check(options.mask.kind == Mask::Kind::full && !options.visibility.defined() &&
              std::ssize(counts) == q.x.rows() + 1,
          "attention: {} queries under a full mask need {} counts of global tokens, got {}", q.x.rows(),
          q.x.rows() + 1, counts.size());
    Pattern others = options.mask.pattern;
    others.global = 0;
    check(others.any(), "attention: global tokens are given beside a pattern that has others");
    for (size_t i = 1; i < counts.size(); ++i)
      check(counts[i] == counts[i - 1] || counts[i] == counts[i - 1] + 1,
            "attention: from row {} on {} global tokens, before {}", i, counts[i], counts[i - 1]);
    for (size_t s = 0; s < keys.lengths.size(); ++s)
      check(keys.lengths[s] == offsets[s + 1] - offsets[s],
            "attention: sequence {} has global tokens of {} queries, and {} keys", s,
            offsets[s + 1] - offsets[s], keys.lengths[s]);
  }
  check(options.cap >= 0 && std::isfinite(options.cap), "attention: a cap must not be negative, got {}",
        options.cap);
  if (options.sinks.defined()) {
    expect_shape("attention", "sinks", options.sinks, {q.heads});
    expect_dtype("attention", "sinks", options.sinks, DType::f32);
  }
  int64_t longest = 0;
  for (const int32_t n : keys.lengths) longest = std::max<int64_t>(longest, n);
  check_pair(q, k, options.pair, longest);
  const Tensor& term = options.term;
  if (!term.defined()) return;
  check(term.dtype() == DType::f32 && term.shape().rank() == 2 && term.dim(0) == q.heads &&
            term.dim(1) % 2 == 1 && term.dim(1) / 2 >= longest - 1,
        "attention: a term {} does not fit {} heads and {} keys", term.shape(), q.heads, longest);
}

}  // namespace qkv
