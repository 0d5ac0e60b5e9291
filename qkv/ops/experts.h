// A mixture of experts: each token goes through a few of many networks (Shazeer et al. 2017; Fedus et al.
// 2021, Switch). A router chooses the experts and their weights. The rows of a batch are then sorted by
// expert, so that each expert is one product over its rows.
#pragma once

#include <span>
#include <vector>

#include "qkv/ops/experts_spec.h"
#include "qkv/tensor/indices.h"
#include "qkv/tensor/weight.h"

namespace qkv {

// How a token's experts are chosen.
struct ChoiceOptions {
  int64_t chosen = 1;  // k: those with the highest affinities
  RouterScore score = RouterScore::softmax;
  bool renormalized = false;  // the weights of the chosen are divided by their sum
  float scale = 1;            // factor on the weights
  // Neighbouring experts form `groups` groups, and experts are chosen from the best `chosen_groups`
  // (DeepSeek-V2, V3). A group is as good as its best expert or, with sigmoid affinities, as the sum of its
  // two best.
  int64_t groups = 1, chosen_groups = 1;
  Tensor bias = {};  // f32 [E]: added to the affinities for the choice, not in the weights; undefined: none
  // Weight of the load-balancing loss E sum_i f_i P_i (Fedus et al., eq. 4). Here f_i is the share of the
  // tokens that chose expert i, and P_i its mean affinity. Only its gradient is computed, in the backward
  // pass.
  float balance = 0;
};

// The k experts of each token and their weights, both [N, k]; weights are f32.
struct Choice {
  Indices experts;
  Tensor weights;
};
// logits f32 [N, E].
Choice choose_experts(const Tensor& logits, const ChoiceOptions& options);

// The M = N k pairs of a token and one of its experts, sorted by expert.
struct ExpertRows {
  std::vector<int32_t> offsets;  // [E + 1]: expert e has the pairs [offsets[e], offsets[e + 1])
  Indices tokens;                // [M]: the token of each pair
  Indices places;                // [N, k]: indices of a token's pairs
};
ExpertRows rows_by_expert(const Indices& experts, int64_t count);

// x [M, in] sorted by expert, weight [E out, in], bias f32 [E out] or undefined -> [M, out]: row m times the
// transpose of its expert's [out, in], plus its expert's bias. Types as in linear().
Tensor expert_linear(const Tensor& x, const Weight& weight, const Tensor& bias,
                     std::span<const int32_t> offsets);

// x [M, D], places [N, k], weights f32 [N, k] -> [M, D]: row places[n, j] is x's times weights[n, j]. Each
// row of x is in one place; places undefined: row n is in place n, and weights are [M, 1].
Tensor scaled_rows(const Tensor& x, const Indices& places, const Tensor& weights);

// y [M, D], places [N, k], weights f32 [N, k] -> [N, D]: row n is sum_j weights[n, j] y[places[n, j]]. Each
// row of y belongs to exactly one token.
Tensor weighted_rows(const Tensor& y, const Indices& places, const Tensor& weights);

}  // namespace qkv
