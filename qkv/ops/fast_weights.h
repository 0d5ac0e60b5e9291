// Fast weights: sequences whose heads each have a matrix that tokens write to and read from, in time that
// grows with their number alone.
#pragma once

#include <optional>
#include <span>

#include "qkv/tensor/tensor.h"

namespace qkv {

// How a divisor d that is too small is raised. No gradient goes through one that is.
enum class LeastDivisor : uint8_t {
  of_magnitude,  // if |d| < least, it becomes least, with its sign
  above,         // max(d, least)
  absolute,      // max(|d|, least)
};

// The inputs of each token, and the rule by which it changes its head's matrix S [d_k, d_v]. With D = diag(w)
// of w = exp(decay), or 1:
//   sum:        S_t = D S_{t-1} + k_t v_t^T        (unnormalised linear attention; Schmidhuber 1992)
//   beta:       S_t = S' + beta_t k_t (v_t - S'^T k_t)^T, S' = D S_{t-1}        (the delta rule; Schlag et
//   al.
//               2021; with decay Yang et al. 2024)
//   a and b:    S_t = D S_{t-1} + b_t (S_{t-1}^T a_t)^T + k_t v_t^T        (RWKV-7, Peng et al. 2025)
// and y_t = S_t^T (scale q_t). Heads h, ..., of which each `heads / key_heads` neighbours share q and k.
struct FastWeightsInput {
  int64_t heads = 1, key_heads = 1;
  Tensor q;               // [N, key_heads d_k], of queries
  Tensor k, v;            // [M, key_heads d_k], [M, heads d_v], of keys
  Tensor decay = {};      // f32 [M, heads] or [M, heads d_k], at most 0
  Tensor beta = {};       // f32 [M, heads]
  Tensor a = {}, b = {};  // [M, heads d_k]
  float scale = 1;
  // y_t is divided by z_t . (scale q_t) + epsilon, z_t = D z_{t-1} + k_t: linear attention (Katharopoulos et
  // al. 2020). Only with the sum.
  std::optional<float> epsilon = {};
  float least_divisor = 0;
  LeastDivisor divisors = LeastDivisor::of_magnitude;
};

struct FastWeightsResult {
  Tensor y;      // [N, heads d_v], of v's type
  Tensor state;  // f32 [sequences, heads d_k (d_v + 1 if there is an epsilon)]: the last S, z its last column
  Tensor marked;  // the same after the steps that were marked; undefined if none were
};

// Sequence s has the queries [offsets[s], offsets[s + 1]) and the keys [key_offsets[s], key_offsets[s + 1]).
// causal: these are the same tokens, and each reads what it and those before it have written. Else all keys
// are written first. `first`: the state before them, undefined: zeros. Gradients reach all of these that are
// defined. `marks`: a number of tokens of each sequence, after which its state is wanted, too; empty: none.
// The bits of y do not depend on how a sequence is cut into calls. Throws Error for shapes and types that do
// not fit.
FastWeightsResult fast_weights(const FastWeightsInput& in, const Tensor& first,
                               std::span<const int32_t> offsets, std::span<const int32_t> key_offsets,
                               bool causal, std::span<const int32_t> marks = {});

}  // namespace qkv
