// An architecture is data: what a model is made of, by the literature's names.
#pragma once

#include <cstdint>
#include <string>

#include "qkv/nn/layers.h"

namespace qkv {

// A decoder-only transformer (Algorithm 10 of Phuong & Hutter): learned positions, pre-LN blocks of causal
// attention and a feed-forward network, a final norm, an unembedding.
struct ModelSpec {
  int64_t vocab_size = 0;  // N_V
  int64_t context = 0;     // l_max
  int64_t width = 0;       // d_e
  int64_t layers = 0;      // L
  AttentionSpec attention;
  int64_t hidden = 0;  // d_mlp
  Activation activation = Activation::gelu_tanh;
  float norm_epsilon = 1e-5F;
  bool tied = true;  // W_u = W_e^T
  float init_std = 0.02F;
  float embedding_dropout = 0;
  float residual_dropout = 0;

  bool operator==(const ModelSpec&) const = default;
};

// GPT-2's shape for these sizes: heads of width / heads, hidden 4 width.
ModelSpec gpt2_spec(int64_t vocab_size, int64_t context, int64_t width, int64_t layers, int64_t heads);

// Throws Error naming the field when the spec makes no sense.
void check_spec(const ModelSpec& spec);

// relu, gelu, gelu_tanh. Throws Error for another name.
Activation activation_from_name(const std::string& name);
std::string name_of(Activation activation);

}  // namespace qkv
