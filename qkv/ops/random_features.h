// Random features: vectors whose dot products are, on average, the exponential of a dot product.
#pragma once

#include <span>

#include "qkv/ops/random_features_spec.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// The features of each head without a factor that they share, and its logarithm.
struct RandomFeatures {
  Tensor features;    // f32 [N, heads m], of fourier [N, heads 2 m]: cosines, then sines; none is above 1
  Tensor log_scales;  // f32 [N, heads]
};

// x f32 [N, heads d], w f32 [m, d]. Gradients reach both. Throws Error for shapes and types that do not fit.
RandomFeatures random_features(RandomMap map, const Tensor& x, const Tensor& w, int64_t heads);

// Positive features as Performer's published code computes them: m^(-1/2) (e^(w_j . x - |x|^2 / 2 - M) +
// epsilon), M the largest w_j . x of a head in the sequence, or in the row where `offsets` is empty.
// Gradients hold M constant. x f32 [N, heads d], w f32 [m, d] -> f32 [N, heads m]. Throws Error for shapes
// and types that do not fit.
Tensor raised_features(const Tensor& x, const Tensor& w, int64_t heads, float epsilon,
                       std::span<const int32_t> offsets);

// The factors of what tokens write to a state, so that none overflows: with the size e^(sizes_t) of what
// token t writes, and a state that shrinks by e^(keeps_t) before it,
//   m_t = max(m_{t-1} + keeps_t, sizes_t),  decays_t = m_{t-1} + keeps_t - m_t,  factors_t = e^(sizes_t -
//   m_t).
// A state that is kept as its part of e^(m_t) thus decays by e^(decays_t) and gains factors_t times what is
// written.
struct RunningScale {
  Tensor decays, factors;  // f32 [N, H]
  Tensor state;            // f32 [sequences, H]: the last m; 0 means that nothing was written
  Tensor marked;           // the same after the steps that were marked; undefined if none were
};

// sizes, keeps f32 [N, H]; keeps may be undefined: zeros. Sequence s has rows [offsets[s], offsets[s + 1]).
// first: f32 [sequences, H], undefined: nothing was written. `marks`: a number of tokens of each sequence.
// Gradients hold m constant: what comes of the state must not depend on it. Throws Error for shapes and types
// that do not fit.
RunningScale running_scale(const Tensor& sizes, const Tensor& keeps, const Tensor& first,
                           std::span<const int32_t> offsets, std::span<const int32_t> marks = {});

}  // namespace qkv
