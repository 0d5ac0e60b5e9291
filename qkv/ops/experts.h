// A mixture of experts: each token goes through a few of many networks (Shazeer et al. 2017; Fedus et al.
// 2021, Switch). A router tells which and how much each counts; the rows of a batch are then put in the order
// of experts, so that each network is one product over its rows.
#pragma once

#include <span>
#include <vector>

#include "qkv/tensor/indices.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// What makes an affinity of a router's logit.
enum class RouterScore : uint8_t {
  softmax,  // over the experts
  sigmoid,  // of each expert on its own (DeepSeek-V3)
};

// How a token's experts are chosen.
struct ChoiceOptions {
  int64_t chosen = 1;  // k: those with the highest affinities
  RouterScore score = RouterScore::softmax;
  bool renormalized = false;  // the weights of the chosen are divided by their sum
  float scale = 1;            // of the weights
  // Experts side by side in so many groups, of which the best few alone are chosen from (DeepSeek-V2, V3). A
  // group is as good as its best expert; with sigmoid affinities, as its two best together.
  int64_t groups = 1, chosen_groups = 1;
  Tensor bias = {};  // f32 [E]: added to the affinities for the choice, not in the weights; undefined: none
  // What reaches the logits besides, in the backward pass alone: the gradient of balance E sum_i f_i P_i
  // (Fedus et al., eq. 4), where f_i is the part of the tokens that chose expert i, P_i its mean affinity.
  float balance = 0;
};

// Of each token its k experts and their weights, both [N, k]; weights are f32.
struct Choice {
  Indices experts;
  Tensor weights;
};
// logits f32 [N, E].
Choice choose_experts(const Tensor& logits, const ChoiceOptions& options);

// The pairs of a token and one of its experts, M = N k of them, in the order of experts.
struct ExpertRows {
  std::vector<int32_t> offsets;  // [E + 1]: expert e has the pairs [offsets[e], offsets[e + 1])
  Indices tokens;                // [M]: the token of each pair
  Indices places;                // [N, k]: where a token's pairs stand
};
ExpertRows rows_by_expert(const Indices& experts, int64_t count);

// x [M, in] in the order of experts, weight [E out, in]: row m times the transpose of the [out, in] of its
// expert -> [M, out].
Tensor expert_linear(const Tensor& x, const Tensor& weight, std::span<const int32_t> offsets);

// y [M, D], places [N, k], weights f32 [N, k] -> [N, D]: row n is sum_j weights[n, j] y[places[n, j]].
// Each row of y is some token's, once.
Tensor weighted_rows(const Tensor& y, const Indices& places, const Tensor& weights);

}  // namespace qkv
