// The options of a gated short convolution (nn/convolution.h).
#pragma once

#include <cstdint>

namespace qkv {

struct GatedConvolutionSpec {
  int64_t kernel = 3;
  bool bias = false;  // both products and the convolution have one

  bool operator==(const GatedConvolutionSpec&) const = default;
};

}  // namespace qkv
