// Short convolutions of layers, with the rows that they remember.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "qkv/nn/convolution_spec.h"
#include "qkv/nn/linear.h"
#include "qkv/nn/replayed_mixer.h"
#include "qkv/ops/short_convolution.h"

namespace qkv {

// A causal convolution of each channel over `kernel` tokens. Its state is the kernel - 1 rows before.
class Convolution {
 public:
  // Parameters: NAME.weight [channels, kernel] and, where wanted, NAME.bias [channels].
  Convolution(Parameters& parameters, const std::string& name, int64_t channels, int64_t kernel, bool bias);
  int64_t channels() const { return channels_; }
  int64_t state_width() const { return (kernel_ - 1) * channels_; }
  // x [N, channels]. first f32 [sequences, state_width() or more]: begins with the rows before; or undefined.
  Tensor forward(const Tensor& x, const Tensor& first, std::span<const int32_t> offsets) const;
  // The result of a mixer's pass that begins with this convolution of x and goes on with `rest`, whose states
  // follow the convolution's.
  ReplayedMixer::Pass before(ReplayedMixer::Pass rest, const Tensor& x, const Tensor& first,
                             std::span<const int32_t> offsets, std::span<const int32_t> marks) const;

 private:
  Tensor tail(const Tensor& first) const;

  int64_t channels_, kernel_;
  Parameter *weight_, *bias_ = nullptr;
};

// W_o (c * conv(b * x)), with b, c and x of one linear map of the input (Liquid AI, LFM2).
class GatedConvolution : public ReplayedMixer {
 public:
  // Parameters begin with `name`: in with weight [3 width, width], whose rows are b's, c's and x's;
  // convolution; out.
  GatedConvolution(Parameters& parameters, const std::string& name, const GatedConvolutionSpec& spec,
                   int64_t width, InitStd std);
  Tensor forward(const Tensor& x, const Context& context) const override;

 private:
  Size size() const override { return {convolution_.state_width(), convolution_.channels()}; }
  Pass pass(const Tensor& rows, const Tensor& first, std::span<const int32_t> offsets,
            std::span<const int32_t> marks) const override;

  Linear in_;
  Convolution convolution_;
  Linear out_;
};

}  // namespace qkv
