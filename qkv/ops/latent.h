// What multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1) does to heads: keys are part
// of them shared, part of each head's own; or, where only the latent is remembered, the projections of keys
// and values move to the queries and to the output.
#pragma once

#include "qkv/ops/attention.h"

namespace qkv {

// shared [N, R], its_own [N, C] of the same type: each of `heads` heads is the row of `shared`, then the next
// `width` columns of its_own, from the first -> [N, heads (R + width)].
Tensor join_heads(const Tensor& shared, const Tensor& its_own, int64_t heads, int64_t width);

// q [N, heads (R + width)], heads as join_heads() makes them; weight [>= heads width, L]: the head's `width`
// columns times its [width, L], then its R columns -> [N, heads (L + R)]. Their products with [latent,
// shared] are those of q with the keys that weight makes of the latent. Without gradient.
Tensor queries_for_latent(const Tensor& q, const Tensor& weight, int64_t heads, int64_t width);

// x [N, heads L], weight [first + heads width, L], of which the rows from `first` on count: each head times
// the transpose of its [width, L] -> [N, heads width]. Without gradient.
Tensor values_from_latent(const Tensor& x, const Tensor& weight, int64_t first, int64_t heads);

}  // namespace qkv
