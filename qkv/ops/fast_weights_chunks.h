// fast_weights() by products of chunks of tokens, for training: sums of k v^T and the delta rule, which may
// fade by a number of each head.
#pragma once

#include <array>

#include "qkv/ops/fast_weights_problem.h"

namespace qkv::fast_weights_parts {

// True if the sums are of this kind.
bool goes_in_chunks(const Problem& p);
// Rows of the states that chunks begin with, [d_k columns] each.
int64_t chunk_states(const Problem& p);
// As fast_weights(); `begins` f32 [chunk_states(), d_k columns] gets these states, if defined. With G_t the
// sum of the logarithms of the factors up to t within a chunk, y_t = sum_s e^(G_t - G_s) (q_t . k_s) v_s +
// e^(G_t) S^T q_t, over s <= t (Dao & Gu 2024, section 6; Yang et al. 2024, gated linear attention). The
// delta rule adds k_t u_t^T with u_t = beta_t (v_t - e^(G_t) S^T k_t - sum_(s < t) e^(G_t - G_s) (k_t . k_s)
// u_s): a triangular system, whose u then stand for v (Yang et al. 2024, Gated Delta Networks, section 3.3).
template <typename T>
void forward_in_chunks(const Problem& p, Tensor& y, Tensor& state, Tensor& begins);
// Adds the gradients of q, k, v, decay, beta and the first state to f32 tensors.
template <typename T>
void backward_in_chunks(const Problem& p, const Tensor& begins, const Tensor& dy, const Tensor& dstate,
                        std::array<Tensor, kSlots>& grad);

}  // namespace qkv::fast_weights_parts
