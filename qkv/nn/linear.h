// A linear layer: W X + b, and the low-rank changes beside its weight.
#pragma once

#include <string>

#include "qkv/nn/adapter.h"
#include "qkv/nn/context.h"
#include "qkv/nn/parameter.h"
#include "qkv/ops/linear.h"

namespace qkv {

// W X + b 1^T.
class Linear {
 public:
  // weight [out, in] drawn with standard deviation `std`; bias [out] of zeros where wanted.
  Linear(Parameters& parameters, const std::string& name, int64_t in, int64_t out, bool bias, float std,
         IdleBias idle = {});
  // [N, in] -> [N, out]. `context`: of the dropout that adapters have; without one there is none.
  Tensor forward(const Tensor& x, const Context& context = {}) const {
    return forward(x, context, context.layout);
  }
  // The same for rows of other sequences than the context's.
  Tensor forward(const Tensor& x, const Context& context, const Layout& layout) const;

 private:
  Parameter* weight_;
  Parameter* bias_ = nullptr;
  IdleBias idle_;
  Adapters adapters_;
};

}  // namespace qkv
