#include "qkv/train/run/new_tokens.h"

#include <algorithm>
#include <cmath>

#include "qkv/base/error.h"
#include "qkv/base/rng.h"

namespace qkv {

bool is_of_vocabulary(const Parameter& p, const Parameter& before) {
  return (p.name == "embedding.token" || p.name == "embedding.layers" || p.name == "unembedding.weight" ||
          p.name == "unembedding.bias") &&
         p.shape.rank() == before.shape.rank() && p.shape[0] >= before.shape[0] &&
         p.shape.count() / p.shape[0] == before.shape.count() / before.shape[0];
}

Tensor NewTokens::rows(const Tensor& before, const Shape& shape) const {
  constexpr uint32_t kSite = 0x6e746f6b;  // "ntok"
  constexpr double kNoise = 0.1;
  Tensor out = Tensor::zeros(shape, DType::f32);
  const int64_t rows = shape[0], columns = shape.count() / rows, there = before.shape()[0];
  check(known > 0 && known <= there, "new tokens: {} known ones of {} rows", known, there);
  const auto from = before.values<float>();
  const auto to = out.mutable_values<float>();
  std::ranges::copy(from, to.begin());
  const RandomStream noise{seed, 0, kSite};
  const auto n = static_cast<double>(known);
  for (int64_t c = 0; c < columns; ++c) {
    double sum = 0, squares = 0;
    for (int64_t r = 0; r < known; ++r) {
      const double x = from[r * columns + c];
      sum += x;
      squares += x * x;
    }
    const double mean = sum / n, deviation = std::sqrt(std::max(0.0, squares / n - mean * mean));
    for (int64_t r = known; r < std::min(all, rows); ++r)
      to[r * columns + c] = static_cast<float>(
          mean + kNoise * deviation * noise.normal(static_cast<uint64_t>(r * columns + c)));
  }
  return out;
}

}  // namespace qkv
