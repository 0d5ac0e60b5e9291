// Attention of recurrent decoders to their source, where it is not a scaled product: one head over rows of
// keys and values.
#pragma once

#include <span>

#include "qkv/ops/attention.h"

namespace qkv {

// Bahdanau et al. 2015, A.1.2: of q [N, A] (W_a s) and keys [M, A] (U_a h) the scores e_j = v . tanh(q +
// k_j), v f32 [A]; of their softmax and values [M, D] the context sum_j a_j v_j: [N, D]. `offsets` [sequences
// + 1] divides the queries, `layout` says which rows of keys and values each sequence sees. A query that sees
// no key gives 0.
Tensor additive_attention(const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& v,
                          std::span<const int32_t> offsets, const KeyLayout& layout);

// Luong et al. 2015, section 3.2 (local-p): a query looks around the place p = S sigmoid(u) among the S keys
// of its sequence, counted from 0. Over the keys j with |j - p| <= window, with a the softmax of the scores q
// . k_j, the context is sum_j a_j exp(-(j - p)^2 / (2 sigma^2)) v_j, sigma = window / 2. q [N, D], keys [M,
// D], values [M, C], u f32 [N, 1] -> [N, C].
Tensor local_attention(const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& u,
                       int64_t window, std::span<const int32_t> offsets, const KeyLayout& layout);

}  // namespace qkv
