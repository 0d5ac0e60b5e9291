// Exact attention over a flat batch.
#pragma once

#include <functional>
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

// Where each sequence's keys and values lie: key j of sequence s is row
// blocks[block_offsets[s] + j / block_rows] + j % block_rows.
struct KeyLayout {
  std::vector<int32_t> lengths;        // keys of each sequence
  std::vector<int32_t> block_offsets;  // [sequences]
  std::vector<int64_t> blocks;         // first rows
  int64_t block_rows = int64_t{1} << 62;

  // Sequence s has the rows [offsets[s], offsets[s + 1]): a contiguous buffer is one block.
  static KeyLayout contiguous(std::span<const int32_t> offsets);
};

// What relative encodings add to the scores of self-attention out of rows of queries and of keys (PairTerm).
struct PairTables {
  // By distance: f32 [N, heads width] of queries, [M, heads width] of the rows of k; undefined: nothing.
  Tensor by_query = {}, by_key = {};
  Indices columns = {};  // [2 reach + 1]: those of distances -reach to reach
  Tensor by_segment =
      {};  // f32 [N, heads 2]: of keys in the query's segment, and of others; undefined: nothing
  Indices segments = {};  // [N], of queries and keys alike
  // [N] likewise, where a sequence's rows do not follow each other as its tokens do; undefined: they do.
  Indices positions = {};

  bool defined() const { return by_query.defined() || by_key.defined() || by_segment.defined(); }
};

// What is done to the scores on the way to probabilities.
struct AttentionOptions {
  Mask mask = {};    // full or causal
  Ranks ranks = {};  // instead of the mask; of self-attention without remembered keys
  Tensor term =
      {};  // f32 [heads, 2 reach + 1], added to the scores by distance (ScoreTerm); undefined: nothing
  float scale = 1;  // 1/sqrt(d_qk) as a rule (Algorithm 4)
  Dropout dropout;  // of the probabilities
  float cap = 0;    // scaled scores s become cap tanh(s / cap) (Gemma 2); 0: they stay
  // f32 [heads]: a score of each head that takes its part of the probabilities to nothing (OpenAI 2025,
  // gpt-oss); undefined: none.
  Tensor sinks = {};
  int64_t padded_length = 0;  // what patterns take for every sequence's length; 0: its own
  PairTables pair = {};       // added to the scores, too
  // [N + 1], of self-attention under a full mask: how many of the tokens before each row are global, seen
  // by all and seeing all, in place of those that the pattern says; undefined: these.
  Indices globals = {};
};

// q [N, heads, d_qk], k and v [M, kv_heads, d_qk / d_vo] -> [N, heads d_vo]; `offsets` [sequences + 1]
// divides the queries. Head h attends with key/value head h / (heads / kv_heads). Lines 4-6 of Algorithm 4 of
// Phuong & Hutter for every head; memory linear in length. A query that sees no key gives 0.
Tensor attention(const Heads& q, const Heads& k, const Heads& v, std::span<const int32_t> offsets,
                 const KeyLayout& keys, const AttentionOptions& options);

// The same by the definition, with the scores and probabilities of every head in hand: for probes and tests.
// visit(sequence, head, scores [queries, keys], probabilities [queries, keys]) may change the probabilities.
// Without gradient and dropout.
using AttentionVisitor =
    std::function<void(int64_t sequence, int64_t head, const Tensor& scores, Tensor& probabilities)>;
Tensor attention_unfused(const Heads& q, const Heads& k, const Heads& v, std::span<const int32_t> offsets,
                         const KeyLayout& keys, const AttentionOptions& options,
                         const AttentionVisitor& visit);

}  // namespace qkv
