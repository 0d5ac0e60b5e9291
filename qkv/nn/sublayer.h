// The function of a residual branch: attention, a feed-forward network or a mixture.
#pragma once

#include <memory>

#include "qkv/nn/context.h"
#include "qkv/nn/layer_state.h"

namespace qkv {

// f in x + f(norm(x)) or norm(x + f(x)).
class Sublayer {
 public:
  virtual ~Sublayer() = default;
  // x [N, D] -> [N, D]. `state` is appended to; null when nothing is remembered.
  virtual Tensor forward(const Tensor& x, const Context& context, LayerState* state) const = 0;
  // After a training step's passes: what they were observed to do moves what no gradient moves.
  virtual void update_buffers() const {}
  // The memory this sublayer needs for decoding, or null.
  virtual std::unique_ptr<LayerState> make_state(int64_t /*sequences*/) const { return nullptr; }
};

// Standard deviations of fresh weights: those that end a residual branch have their own.
struct InitStd {
  float inner, out;
};

}  // namespace qkv
