// Norms: they keep the size of activations in bounds.
#pragma once

#include <string>

#include "qkv/nn/context.h"
#include "qkv/nn/parameter.h"
#include "qkv/ops/norm.h"

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

// Normalises rows and scales them by its own weights.
class Norm {
 public:
  Norm(Parameters& parameters, const std::string& name, int64_t width, const NormSpec& spec);
  // Returns x + dropout(branch), or x if there is no branch, and the norm of that: [N, D] each.
  ResidualNormResult add_and_norm(const Tensor& x, const Tensor& branch, const Dropout& dropout,
                                  const Context& context) const;
  // [N, D] -> [N, D].
  Tensor forward(const Tensor& x, const Context& context = {}) const {
    return add_and_norm(x, {}, {}, context).normalized;
  }

 private:
  Tensor gamma() const;
  Tensor of_batch(const Tensor& x, const Context& context) const;

  NormSpec spec_;
  int64_t width_;
  Parameter* gamma_ = nullptr;
  Parameter* beta_ = nullptr;
  Parameter *mean_ = nullptr, *variance_ = nullptr;  // batch norm's running averages, f32 [D]
  Tensor ones_, zeros_;                              // stand in for weights that the norm lacks
};

}  // namespace qkv
