// The steps are those of ggml's make_q*_quants(): Copyright (c) 2023-2026 The ggml authors, MIT
// (LICENSE.ggml).
#include "qkv/quant/quantize_search.h"

#include <cassert>

namespace qkv::quant {
namespace {

int clamp_signed(int level, int bound) {
  return std::max(-bound, std::min(bound - 1, level));
}

// Sums of a weighted fit: of w * x * l and of w * l * l.
struct FitSums {
  float xl = 0, ll = 0;

  void add(float weight, float x, int level) {
    const auto l = static_cast<float>(level);
    xl += weight * x * l;
    ll += weight * l * l;
  }
};

// Levels l(i) + bound, in [0, 2 * bound), of a group's numbers.
template <int n>
void round_levels(const float* x, float inverse, int bound, int8_t* levels) {
  for (int i = 0; i < n; ++i)
    levels[i] = static_cast<int8_t>(clamp_signed(nearest(inverse * x[i]), bound) + bound);
}

// A group's weights, and numbers times weights: loops over them vectorize, the sums have to be in order.
template <int n>
struct WeightedGroup {
  float weights[n], products[n];

  explicit WeightedGroup(const Group& group) {
    for (int i = 0; i < n; ++i) {
      weights[i] = group.weights ? group.weights[i] : group.x[i] * group.x[i];
      products[i] = weights[i] * group.x[i];
    }
  }

  FitSums sums_for(const float* x, float inverse, int bound) const {
    float xl[n], ll[n];
    for (int i = 0; i < n; ++i) {
      const auto l = static_cast<float>(clamp_signed(nearest(inverse * x[i]), bound));
      xl[i] = products[i] * l;
      ll[i] = weights[i] * l * l;
    }
    FitSums sums;
    for (int i = 0; i < n; ++i) {
      sums.xl += xl[i];
      sums.ll += ll[i];
    }
    return sums;
  }
};

template <int n>
float fit_scale_of(const Group& group, int bound, int8_t* levels) {
  const float* x = group.x;
  const float max = extreme(x, n);
  if (std::fabs(max) < kZeroGroup) {
    std::fill_n(levels, n, int8_t{0});
    return 0;
  }
  const WeightedGroup<n> weighted(group);
  float best_inverse = static_cast<float>(-bound) / max;
  FitSums sums = weighted.sums_for(x, best_inverse, bound);
  float scale = sums.ll != 0 ? sums.xl / sums.ll : 0;
  float best = scale * sums.xl;
  for (int step = -9; step <= 9; ++step) {
    if (step == 0) continue;
    const float inverse = -(static_cast<float>(bound) + 0.1f * static_cast<float>(step)) / max;
    sums = weighted.sums_for(x, inverse, bound);
    if (sums.ll > 0 && sums.xl * sums.xl > best * sums.ll) {
      best_inverse = inverse;
      scale = sums.xl / sums.ll;
      best = scale * sums.xl;
    }
  }
  round_levels<n>(x, best_inverse, bound, levels);
  return scale;
}

}  // namespace

float fit_scale(const Group& group, int bound, int8_t* levels) {
  assert(group.n == 16 || group.n == 32);
  return group.n == 16 ? fit_scale_of<16>(group, bound, levels) : fit_scale_of<32>(group, bound, levels);
}

float fit_scale_by_moves(const float* x, int n, int bound, int8_t* levels) {
  const float max = extreme(x, n);
  if (std::fabs(max) < kZeroGroup) {
    std::fill_n(levels, n, int8_t{0});
    return 0;
  }
  const float inverse = static_cast<float>(-bound) / max;
  FitSums sums;
  for (int i = 0; i < n; ++i) {
    const int l = clamp_signed(nearest(inverse * x[i]), bound);
    levels[i] = static_cast<int8_t>(l);
    sums.add(x[i] * x[i], x[i], l);
  }
  for (int round = 0; round < 5; ++round) {
    bool moved = false;
    for (int i = 0; i < n; ++i) {
      const float w = x[i] * x[i];
      const auto l = static_cast<float>(levels[i]);
      FitSums other{.xl = sums.xl - w * x[i] * l, .ll = 0};
      if (!(other.xl > 0)) continue;
      other.ll = sums.ll - w * l * l;
      const int level = clamp_signed(nearest(x[i] * other.ll / other.xl), bound);
      if (level == levels[i]) continue;
      other.add(w, x[i], level);
      if (other.ll > 0 && other.xl * other.xl * sums.ll > sums.xl * sums.xl * other.ll) {
        levels[i] = static_cast<int8_t>(level);
        sums = other;
        moved = true;
      }
    }
    if (!moved) break;
  }
  for (int i = 0; i < n; ++i) levels[i] = static_cast<int8_t>(levels[i] + bound);
  return sums.ll > 0 ? sums.xl / sums.ll : 0;
}

float fit_positive_scale(const Group& group, int top, uint8_t* levels) {
  const int n = group.n;
  const float* x = group.x;
  const float* weights = group.weights;
  float max = 0;
  for (int i = 0; i < n; ++i) max = max > x[i] ? max : x[i];
  if (max < kZeroGroup) {
    std::fill_n(levels, n, uint8_t{0});
    return 0;
  }
  float inverse = static_cast<float>(top) / max;
  float best = 0;
  for (int i = 0; i < n; ++i) {
    levels[i] = static_cast<uint8_t>(nearest(inverse * x[i]));
    const float error = x[i] - 1 / inverse * static_cast<float>(levels[i]);
    best += weights[i] * error * error;
  }
  for (int step = -4; step <= 4; ++step) {
    if (step == 0) continue;
    const float tried = (0.1f * static_cast<float>(step) + static_cast<float>(top)) / max;
    const float scale = 1 / tried;
    float squares = 0;
    for (int i = 0; i < n; ++i) {
      const float error = x[i] - scale * static_cast<float>(std::min(top, nearest(tried * x[i])));
      squares += weights[i] * error * error;
    }
    if (squares < best) {
      best = squares;
      inverse = tried;
    }
  }
  FitSums sums;
  for (int i = 0; i < n; ++i) {
    const int level = std::min(top, nearest(inverse * x[i]));
    levels[i] = static_cast<uint8_t>(level);
    sums.add(weights[i], x[i], level);
  }
  for (int round = 0; round < 5; ++round) {
    bool moved = false;
    for (int i = 0; i < n; ++i) {
      const float w = weights[i];
      const auto l = static_cast<float>(levels[i]);
      FitSums other{.xl = sums.xl - w * x[i] * l, .ll = sums.ll - w * l * l};
      if (!(other.xl > 0 && other.ll > 0)) continue;
      const int level = std::min(top, nearest(x[i] * other.ll / other.xl));
      if (level == levels[i]) continue;
      other.add(w, x[i], level);
      if (other.xl * other.xl * sums.ll > sums.xl * sums.xl * other.ll) {
        levels[i] = static_cast<uint8_t>(level);
        sums = other;
        moved = true;
      }
    }
    if (!moved) break;
  }
  return sums.ll > 0 ? sums.xl / sums.ll : 0;
}

Affine fit_affine(const Group& group, const AffineGrid& grid, uint8_t* levels) {
  const int n = group.n;
  const float* x = group.x;
  const float* weights = group.weights;
  float min = x[0], max = x[0], sum_w = weights[0], sum_x = weights[0] * x[0];
  for (int i = 1; i < n; ++i) {
    if (x[i] < min) min = x[i];
    if (x[i] > max) max = x[i];
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  if (min > 0) min = 0;
  if (max <= min) {
    std::fill_n(levels, n, uint8_t{0});
    return {.scale = 0, .min = -min};
  }
  const auto top = static_cast<float>(grid.top);
  const auto level_of = [&](float number, float inverse, float least) {
    return std::max(0, std::min(grid.top, nearest(inverse * (number - least))));
  };
  // The error of numbers scale * chosen(i) + offset.
  const auto error_of = [&](const uint8_t* chosen, float scale, float offset) {
    float total = 0;
    for (int i = 0; i < n; ++i) {
      const float difference = scale * static_cast<float>(chosen[i]) + offset - x[i];
      total += weights[i] * (grid.absolute ? std::fabs(difference) : difference * difference);
    }
    return total;
  };
  const float range = max - min;
  const float first_inverse = top / range;
  for (int i = 0; i < n; ++i) levels[i] = static_cast<uint8_t>(level_of(x[i], first_inverse, min));
  Affine found{.scale = 1 / first_inverse, .min = min};  // its min is negated at the end
  float best = error_of(levels, found.scale, found.min);
  // ggml reads the range again below: by then it has moved the minimum to the best one so far.
  for (int k = 0; k <= grid.steps; ++k) {
    const float inverse = (grid.first + grid.step * static_cast<float>(k) + top) / (max - found.min);
    uint8_t tried[kMaxGroup];
    float sum_l = 0, sum_ll = 0, sum_xl = 0;
    for (int i = 0; i < n; ++i) {
      const int level = level_of(x[i], inverse, found.min);
      tried[i] = static_cast<uint8_t>(level);
      const auto l = static_cast<float>(level);
      const float w = weights[i];
      sum_l += w * l;
      sum_ll += w * l * l;
      sum_xl += w * l * x[i];
    }
    const float determinant = sum_w * sum_ll - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    float scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float offset = (sum_ll * sum_x - sum_l * sum_xl) / determinant;
    if (offset > 0) {
      offset = 0;
      scale = sum_xl / sum_ll;
    }
    const float error = error_of(tried, scale, offset);
    if (error < best) {
      std::copy_n(tried, n, levels);
      best = error;
      found = {.scale = scale, .min = offset};
    }
  }
  found.min = -found.min;
  return found;
}

}  // namespace qkv::quant
