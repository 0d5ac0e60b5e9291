#include "qkv/nn/random_vectors.h"

#include <cmath>
#include <numeric>

namespace qkv {

std::vector<float> random_vectors(int64_t count, int64_t width, bool orthogonal, const RandomStream& stream) {
  const auto w = static_cast<size_t>(width);
  std::vector<std::vector<double>> block;  // unit vectors
  std::vector<float> out;
  for (int64_t v = 0; v < count; ++v) {
    std::vector<double> x(w);
    double length = 0;  // that of another vector, squared
    for (size_t i = 0; i < w; ++i) {
      const uint64_t at = static_cast<uint64_t>(v) * w + i;
      x[i] = stream.normal(2 * at);
      length += std::pow(stream.normal(2 * at + 1), 2);
    }
    if (orthogonal) {
      if (v % width == 0) block.clear();
      for (const std::vector<double>& u : block) {
        const double part = std::inner_product(u.begin(), u.end(), x.begin(), 0.0);
        for (size_t i = 0; i < w; ++i) x[i] -= part * u[i];
      }
      const double norm = std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
      for (double& n : x) n /= norm;
      block.push_back(x);
      for (double& n : x) n *= std::sqrt(length);
    }
    out.insert(out.end(), x.begin(), x.end());
  }
  return out;
}

}  // namespace qkv
