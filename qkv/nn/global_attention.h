// Attention of the tokens that see all others whatever the pattern.
#pragma once

#include <string>

#include "qkv/nn/attention_spec.h"
#include "qkv/nn/linear.h"
#include "qkv/nn/sublayer.h"

namespace qkv {

// What tokens that see all others see, by projections of their own (Beltagy et al. 2020, section 3.1).
class GlobalAttention {
 public:
  GlobalAttention(Parameters& parameters, const std::string& name, int64_t width, const AttentionSpec& spec,
                  InitStd std);
  // The heads' outputs [N, heads d_vo] with the rows of global tokens in place: those that the context names,
  // or the first so many of each sequence. `site`: its place among the uses of randomness; dropout tells
  // global tokens by their order in the micro-batch.
  Tensor replace(const Tensor& heads, const Tensor& x, int64_t first, float scale, uint32_t site,
                 const Context& context) const;

 private:
  std::string name_;
  AttentionSpec spec_;
  Linear q_, kv_;
};

}  // namespace qkv
