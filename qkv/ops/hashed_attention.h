// Attention among neighbours in an order that hashes or positions give: LSH attention.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "qkv/kernels/kernels.h"
#include "qkv/ops/hashed_attention_spec.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

struct HashedAttentionOptions {
  HashedAttention order = {};
  int64_t heads = 1;
  bool causal = true;
  bool own_last = true;  // a query sees its own key only if it sees no other
  float scale = 1;
  Dropout dropout = {};       // drops probabilities, but not those of a token's own key where that comes last
  int64_t padded_length = 0;  // the length that all sequences are filled up to; 0: each has its own
};

// Buckets of queries [N, heads d] in sequence s of `offsets`, for one head: [rounds, length], plus that of
// the round's first. rotations: f32 [heads, d, rounds, columns()], standard normal numbers. The bucket of x
// is the number of the largest of xR and -xR, for each factor.
std::vector<int32_t> hash_buckets(const Tensor& queries, const Tensor& rotations,
                                  const HashedAttention& order, int64_t head, int64_t begin, int64_t end);

// q, k [N, heads d], v [N, heads d_v] -> [N, heads d_v], of one type; offsets [sequences + 1]. A query's
// probabilities are those of all rounds together: softmax over the keys that it sees, as often as it sees
// them. Time and memory grow with N log N. Throws Error if shapes do not fit.
Tensor hashed_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& rotations,
                        std::span<const int32_t> offsets, const HashedAttentionOptions& options);

// Values of each sequence and head: probabilities, without dropout.
enum class HashedView : uint8_t {
  together,  // f32 [queries, keys]
  // Those of each round by itself, as Hugging Face's code shows them: f32 [chunks, chunk, keys of a chunk],
  // in sorted order; of sequences that are attended to in full as `together`.
  by_chunk,
  buckets,  // not probabilities: each token's bucket, f32 [rounds, length]; of those that fill up the last
};
void visit_hashed_probabilities(const Tensor& q, const Tensor& k, const Tensor& rotations,
                                std::span<const int32_t> offsets, const HashedAttentionOptions& options,
                                HashedView view,
                                const std::function<void(int64_t sequence, int64_t head, Tensor&)>& visit);

}  // namespace qkv
