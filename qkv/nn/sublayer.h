// The function of a residual branch: attention, a feed-forward network or a mixture.
#pragma once

#include <memory>

#include "qkv/nn/context.h"
#include "qkv/nn/states.h"

namespace qkv {

// f in x + f(norm(x)) or norm(x + f(x)).
class Sublayer {
 public:
  virtual ~Sublayer() = default;
  // x [N, D] -> [N, D]. States of the context are appended to.
  virtual Tensor forward(const Tensor& x, const Context& context) const = 0;
  // After a training step's passes: what they were observed to do moves what no gradient moves.
  virtual void update_buffers() const {}
  // Adds what this sublayer remembers of so many sequences: while decoding, and of the rows before a segment,
  // of which `longest` are kept. REQUIRES, of the second: the spec has memory.
  virtual void add_states(DecodingStates& /*states*/, int64_t /*sequences*/) const {}
  virtual void add_segment_states(SegmentStates& /*states*/, int64_t /*sequences*/,
                                  int64_t /*longest*/) const {}
};

// Standard deviations of fresh weights: those that end a residual branch have their own.
struct InitStd {
  float inner, out;
};

}  // namespace qkv
