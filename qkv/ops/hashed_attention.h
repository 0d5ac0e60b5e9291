// Attention among neighbours in an order that hashes or positions give: LSH attention.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "qkv/kernels/kernels.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// The places of tokens in that order. In each of `rounds`, tokens are sorted by buckets, those of a bucket by
// positions. The sorted rounds, one behind another, are cut into chunks. The queries of a chunk see its keys,
// and those of chunks before and after it; behind the last chunk comes the first. A step of
// more chunks than there are leads to the chunk itself, as in Hugging Face's code.
struct HashedAttention {
  int64_t chunk = 0;              // tokens; a sequence that is no longer is attended to in full
  int64_t before = 1, after = 0;  // chunks that a chunk sees beside itself
  int64_t rounds = 1;
  std::vector<int64_t> buckets =
      {};  // even factors of their number; none: tokens stay in order, in one round
  // Queries see the keys of their own bucket only, and a key that several rounds show counts once (Kitaev et
  // al. 2020, equations 4 to 6). Hugging Face's code has neither rule.
  bool same_bucket = false;
  // Sequences longer than `whole` are filled up to a multiple of this. The tokens that are added have a
  // bucket behind all others, and nobody sees them.
  int64_t multiple = 1, whole = 0;

  // Columns of a round's rotation.
  int64_t columns() const {
    int64_t sum = 0;
    for (const int64_t n : buckets) sum += n / 2;
    return sum;
  }
  bool operator==(const HashedAttention&) const = default;
};

// The factors of a usual number of buckets for sequences of up to `context` tokens, as Hugging Face's code
// chooses them: a power of 2 near 2 context / chunk, and two factors where that is large.
std::vector<int64_t> usual_buckets(int64_t context, int64_t chunk);

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
