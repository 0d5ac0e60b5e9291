// Exact attention over a flat batch.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "qkv/batch/layout.h"
#include "qkv/kernels/kernels.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// `heads` heads of `width` columns each, starting at `column` of x [N, C]: q, k and v stay where the (fused)
// projection wrote them.
struct Heads {
  Tensor x;
  int64_t column = 0;
  int64_t heads = 1;
  int64_t width = 0;
};

// Locations of each sequence's keys and values: key j of sequence s is row
// blocks[block_offsets[s] + j / block_rows] + j % block_rows.
struct KeyLayout {
  std::vector<int32_t> lengths;        // keys of each sequence
  std::vector<int32_t> block_offsets;  // [sequences]
  std::vector<int64_t> blocks;         // first rows
  int64_t block_rows = int64_t{1} << 62;

  // Sequence s has the rows [offsets[s], offsets[s + 1]): a contiguous buffer is one block.
  static KeyLayout contiguous(std::span<const int32_t> offsets);
};

// Tables, by rows of queries and of keys, whose entries relative encodings add to the scores of
// self-attention (PairTerm).
struct PairTables {
  // By distance: f32 [N, heads width] for queries, [M, heads width] for the rows of k; undefined: none.
  Tensor by_query = {}, by_key = {};
  Indices columns = {};    // [2 reach + 1]: columns of distances -reach to reach
  Tensor by_segment = {};  // f32 [N, heads 2]: for keys in the query's segment, for others; undefined: none
  Indices segments = {};   // [N], of queries and keys alike
  // [N], of queries and keys alike: positions, if a sequence's rows are not in the order of its tokens;
  // undefined: they are.
  Indices positions = {};

  bool defined() const { return by_query.defined() || by_key.defined() || by_segment.defined(); }
};

// Options of attention: how scores become probabilities.
struct AttentionOptions {
  Mask mask = {};  // full or causal
  // Instead of the mask (a table also instead of its pattern); for self-attention without cached keys.
  Visibility visibility = {};
  Tensor term = {};  // f32 [heads, 2 reach + 1], added to scores by distance (ScoreTerm); undefined: none
  float scale = 1;   // usually 1/sqrt(d_qk) (Algorithm 4)
  Dropout dropout;   // dropout of probabilities
  float cap = 0;     // scaled scores s become cap tanh(s / cap) (Gemma 2); 0: no cap
  // f32 [heads]: a score per head whose share of the probabilities goes to no value (OpenAI 2025, gpt-oss);
  // undefined: none.
  Tensor sinks = {};
  int64_t padded_length = 0;  // length that patterns assume for every sequence; 0: its own
  PairTables pair = {};       // also added to the scores
  // [N + 1], for self-attention under a full mask: the number of global tokens before each row. Global
  // tokens see all and are seen by all. They replace the pattern's; undefined: the pattern decides.
  Indices globals = {};
};

// q [N, heads, d_qk], k and v [M, kv_heads, d_qk / d_vo] -> [N, heads d_vo]; `offsets` [sequences + 1]
// divides the queries. Head h attends with key/value head h / (heads / kv_heads). Lines 4-6 of Algorithm 4 of
// Phuong & Hutter for every head; memory linear in length. A query that sees no key gives 0.
Tensor attention(const Heads& q, const Heads& k, const Heads& v, std::span<const int32_t> offsets,
                 const KeyLayout& keys, const AttentionOptions& options);

}  // namespace qkv
