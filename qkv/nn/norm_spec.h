// The options of a norm (nn/norm.h).
#pragma once

#include <cstdint>

namespace qkv {

// Kinds of norms.
enum class Normalization : uint8_t {
  layer,           // Algorithm 6 of Phuong & Hutter with an epsilon
  layer_scale,     // the same without beta
  layer_plain,     // without gamma and beta: the z-score
  rms,             // RMSNorm: neither centred nor shifted
  rms_plus_one,    // RMSNorm with the factor 1 + weight (Gemma)
  scale,           // g x / |x|, one g = gamma sqrt(D) for all columns (Nguyen & Salazar 2019, ScaleNorm)
  capsule,         // the squash function of capsules (Sabour et al. 2017), which has no weights
  layer_plus_one,  // layer norm with the factor 1 + gamma (Nemotron)
  // Batch norm: each column over the tokens of a micro-batch, or outside training by the running averages
  // (Ioffe & Szegedy 2015).
  batch,
};

// The options of a norm.
struct NormSpec {
  Normalization kind = Normalization::layer;
  float epsilon = 1e-5F;
};

}  // namespace qkv
