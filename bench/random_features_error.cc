// Measures how near attention by random features comes to softmax attention. Prints, for each map and kind of
// vectors and each number of them, the root of the mean squared error over that of the values' means:
//   map vectors deviation count error
// where `deviation` is that of the scores q . k.
// bench/random_features_error.py draws the curves.
#include <fmt/format.h>

#include <cmath>

#include "qkv/autograd/graph.h"
#include "qkv/nn/random_vectors.h"
#include "qkv/ops/attention.h"
#include "qkv/ops/fast_weights.h"
#include "qkv/ops/products.h"
#include "qkv/ops/random_features.h"

namespace qkv {
namespace {

constexpr int64_t kTokens = 256, kWidth = 32, kTrials = 8;

Tensor draw(uint64_t seed, double size) {
  Tensor x = Tensor::empty({kTokens, kWidth}, DType::f32);
  const RandomStream stream{seed, 0, 0};
  for (int64_t i = 0; i < x.count(); ++i)
    x.mutable_data<float>()[i] = static_cast<float>(size * stream.normal(static_cast<uint64_t>(i)));
  return x;
}

double error(RandomMap map, bool orthogonal, double deviation, int64_t count) {
  const std::vector<int32_t> offsets = {0, kTokens};
  double squares = 0, all = 0;
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    const double size = std::sqrt(deviation) * std::pow(static_cast<double>(kWidth), -0.25);
    const Tensor q = draw(3 * trial, size), k = draw(3 * trial + 1, size), v = draw(3 * trial + 2, 1);
    const Tensor want = attention({q, 0, 1, kWidth}, {k, 0, 1, kWidth}, {v, 0, 1, kWidth}, offsets,
                                  KeyLayout::contiguous(offsets), {.mask = Mask::causal(), .dropout = {}});
    const Tensor w = Tensor::of({count, kWidth}, random_vectors(count, kWidth, orthogonal, {trial, 1, 2}));
    const RandomFeatures of_q = random_features(map, q, w, 1), of_k = random_features(map, k, w, 1);
    const RunningScale scale = running_scale(of_k.log_scales, {}, {}, offsets, {});
    const Tensor got = fast_weights({.heads = 1,
                                     .key_heads = 1,
                                     .q = of_q.features,
                                     .k = scaled_heads(of_k.features, scale.factors),
                                     .v = v,
                                     .decay = scale.decays,
                                     .epsilon = 0.0F,
                                     .least_divisor = 1e-6F},
                                    {}, offsets, offsets, true, {})
                           .y;
    for (int64_t i = 0; i < want.count(); ++i) {
      const double x = want.data<float>()[i], off = got.data<float>()[i] - x;
      squares += off * off;
      all += x * x;
    }
  }
  return std::sqrt(squares / all);
}

}  // namespace
}  // namespace qkv

int main() {
  const qkv::NoGrad guard;
  for (const auto& [name, map] :
       {std::pair("fourier", qkv::RandomMap::fourier), {"positive", qkv::RandomMap::positive}})
    for (const bool orthogonal : {false, true})
      for (const double deviation : {0.25, 1.0})
        for (int64_t count = 16; count <= 4096; count *= 2)
          fmt::print("{} {} {} {} {:.5f}\n", name, orthogonal ? "orthogonal" : "independent", deviation,
                     count, qkv::error(map, orthogonal, deviation, count));
  return 0;
}
