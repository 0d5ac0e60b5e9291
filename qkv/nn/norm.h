// Norms: they keep the size of activations in bounds.
#pragma once

#include <string>

#include "qkv/nn/context.h"
#include "qkv/nn/norm_spec.h"
#include "qkv/nn/parameter.h"
#include "qkv/ops/norm.h"

namespace qkv {

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
