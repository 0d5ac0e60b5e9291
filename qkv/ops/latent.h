// Operations on the heads of multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1). A
// part of a key is shared by all heads, the rest is the head's own. If only latents are cached, the
// projections of keys and values move to the queries and to the output.
#pragma once

#include "qkv/ops/attention.h"

namespace qkv {

// shared [N, R], its_own [N, C] of the same type -> [N, heads (R + width)]: each of `heads` heads is the
// row of `shared`, then the next `width` columns of its_own, from the first on.
Tensor join_heads(const Tensor& shared, const Tensor& its_own, int64_t heads, int64_t width);

// q [N, heads (R + width)], heads as join_heads() makes them; weight [>= heads width, L]: the head's
// `width` columns times its [width, L], then its R columns -> [N, heads (L + R)]. Their products with
// [latent, shared] are those of q with the keys that `weight` computes from the latent. Without gradient.
Tensor queries_for_latent(const Tensor& q, const Tensor& weight, int64_t heads, int64_t width);

// x [N, heads L], weight [first + heads width, L], used from row `first` on: each head times the transpose
// of its [width, L] -> [N, heads width]. Without gradient.
Tensor values_from_latent(const Tensor& x, const Tensor& weight, int64_t first, int64_t heads);

}  // namespace qkv
