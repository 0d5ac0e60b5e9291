// A gated short convolution as a mixer.
#pragma once

#include "qkv/models/mixers/mixer.h"
#include "qkv/models/spec_field.h"
#include "qkv/nn/convolution_spec.h"

namespace qkv {

// A short convolution between two gates (nn/convolution.h; Liquid AI, LFM2).
struct ConvolutionMixer : GatedConvolutionSpec {
  static constexpr const char* kName = "convolution";
  static constexpr const char* kPart = "convolution";
  static constexpr bool kAttends = false;
  static constexpr bool kKnowsOrder = true;

  template <typename Spec, typename Visitor>
  static void for_each_field(Spec& m, Visitor& v) {
    v({.name = "convolution_kernel",
       .help = "convolution: tokens that it sees, the present one among them",
       .weights = WithWeights::kept,
       .since = 20},
      m.kernel, Integers{2, 64});
    v({.name = "convolution_bias",
       .help = "convolution: biases of the convolution and of the products around it",
       .weights = WithWeights::kept,
       .since = 20},
      m.bias);
  }
  void check(const ModelSpec& spec) const;
  std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
  MixerCost cost(const ModelSpec& spec, bool causal) const;
  bool operator==(const ConvolutionMixer&) const = default;
};

}  // namespace qkv
