// Attention of global tokens, which see all others whatever the pattern.
#pragma once

#include <string>

#include "qkv/nn/attention_spec.h"
#include "qkv/nn/linear.h"
#include "qkv/nn/sublayer.h"

namespace qkv {

// Attention of global tokens by projections of their own (Beltagy et al. 2020, section 3.1).
class GlobalAttention {
 public:
  GlobalAttention(Parameters& parameters, const std::string& name, int64_t width, const AttentionSpec& spec,
                  InitStd std);
  // Replaces the rows of global tokens in the heads' outputs [N, heads d_vo]. Global tokens are those that
  // the context names, or else the `first` tokens of each sequence. `site`: random site of dropout, which
  // numbers global tokens in the order of the micro-batch.
  Tensor replace(const Tensor& heads, const Tensor& x, int64_t first, float scale, uint32_t site,
                 const Context& context) const;

 private:
  std::string name_;
  AttentionSpec spec_;
  Linear q_, kv_;
};

}  // namespace qkv
