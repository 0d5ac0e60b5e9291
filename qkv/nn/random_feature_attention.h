// Attention by random features, as the function of a residual branch: RFA and Performer.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "qkv/nn/linear.h"
#include "qkv/nn/random_feature_spec.h"
#include "qkv/nn/replayed_mixer.h"
#include "qkv/ops/random_features.h"

namespace qkv {

// W_o y, with y_t = sum_s (phi(q_t) . phi(k_s)) v_s / sum_s phi(q_t) . phi(k_s), whose features approximate
// softmax attention in time that grows with the number of tokens alone (Peng et al. 2021, RFA; Choromanski et
// al. 2021, Performer). Gated, sums are S_t = g_t S_{t-1} + (1 - g_t) phi(k_t) v_t^T with g = sigmoid(W_g x)
// (Peng et al. 2021, eq. 6).
class RandomFeatureAttention : public ReplayedMixer {
 public:
  // Parameters begin with `name`: q, k, v and out with weight [width, width] and bias, gate with weight
  // [heads, width] and bias, `factors` [width] if unit, and `vectors` [count, width / heads], which no
  // gradient moves. REQUIRES: width is a multiple of the number of heads. `site`: of the random numbers of
  // new vectors.
  RandomFeatureAttention(Parameters& parameters, const std::string& name, const RandomFeatureSpec& spec,
                         int64_t width, bool causal, uint32_t site, InitStd std);
  Tensor forward(const Tensor& x, const Context& context) const override;
  void update_buffers() const override;

 private:
  int64_t features() const { return spec_.count * (spec_.map == RandomMap::fourier ? 2 : 1); }
  // The features of queries or, `keys`, of keys, as a map of x gives them.
  RandomFeatures features_of(const Linear& map, bool keys, const Tensor& x, const Context& context) const;
  // A token's: features of its query and key, value, size and, if gated, the logarithm of its gate.
  Size size() const override;
  Pass pass(const Tensor& rows, const Tensor& first, std::span<const int32_t> offsets,
            std::span<const int32_t> marks) const override;

  RandomFeatureSpec spec_;
  int64_t width_;
  bool causal_;
  uint32_t site_;
  Linear q_, k_, v_, out_;
  std::unique_ptr<Linear> gate_;
  Parameter* vectors_;
  Parameter* factors_ = nullptr;
  mutable std::atomic<uint64_t> seed_ = 0, step_ = 0;  // those of the last training step that it saw
};

}  // namespace qkv
