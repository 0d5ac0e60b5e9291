// The options of a mixture of experts (nn/experts.h).
#pragma once

#include <cstdint>

#include "qkv/ops/experts_spec.h"

namespace qkv {

// The options of a mixture of experts. Experts have the activation and the gate of the feed-forward
// network.
struct ExpertsSpec {
  int64_t count = 0;             // E; 0: the model has no mixture
  int64_t chosen = 2;            // experts per token (top-k)
  int64_t hidden = 0;            // hidden width of an expert
  int64_t first = 0, every = 1;  // first layer with a mixture, from 0, and the distance to the next
  RouterScore score = RouterScore::softmax;
  bool router_bias = false;  // bias of the router's linear layer (gpt-oss)
  bool bias = false;         // biases of the experts' linear layers (gpt-oss)
  // An expert's weight multiplies its input instead of its output (Llama 4).
  bool input_weighted = false;
  bool renormalized = true;  // the weights of the chosen experts sum to `scale`
  float scale = 1;
  bool choice_bias = false;  // each expert has a bias for the choice alone, which no gradient reaches
  // Step size of that bias. It falls after a step in which the expert was chosen more often than the mean,
  // and rises if less often (DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2).
  float choice_rate = 0.001F;
  int64_t groups = 1, chosen_groups = 1;
  int64_t shared_hidden = 0;  // hidden width of the shared expert, which every token uses; 0: none
  bool shared_gated = false;  // the shared expert is multiplied by sigmoid(w . x)
  float balance = 0.01F;      // weight of the load-balancing loss in training
  int64_t capacity = 0;       // maximum tokens per sequence and expert; 0: no limit

  bool in_layer(int64_t l) const { return count > 0 && l >= first && (l - first) % every == 0; }
  bool operator==(const ExpertsSpec&) const = default;
};

}  // namespace qkv
