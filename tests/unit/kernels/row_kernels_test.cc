// The SIMD kernels that reduce over a row against the plain loops.
#include <algorithm>

#include "tests/unit/kernels/kernel_testing.h"

namespace qkv::row_kernels_test {
namespace {

template <typename T>
class Rows : public ::testing::Test {};
using Types = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(Rows, Types);

// Statistics of one row of sums, in f64, for the bounds below.
struct RowStatistics {
  double mean_abs = 0, mean = 0, variance = 0;
};

template <typename T>
RowStatistics statistics(const Buffer<T>& x, int64_t row, int64_t width) {
  RowStatistics s;
  const auto n = static_cast<double>(width);
  for (int64_t c = 0; c < width; ++c) {
    s.mean_abs += std::abs(x.at(row * width + c)) / n;
    s.mean += x.at(row * width + c) / n;
  }
  for (int64_t c = 0; c < width; ++c) s.variance += std::pow(x.at(row * width + c) - s.mean, 2) / n;
  return s;
}

// The mean errs by at most dm = (width + 2) eps mean|s|. The variance, whose deviations are all off by dm, by
// (width + 4) eps v + 2 dm sqrt(v) + dm^2; rstd = (v + epsilon)^-1/2 by half of that over v + epsilon,
// relatively, and three roundings.
struct NormBounds {
  double mean, relative_rstd, rstd;
  NormBounds(const RowStatistics& s, int64_t width, double epsilon) {
    const auto n = static_cast<double>(width);
    mean = (n + 2) * kEps * s.mean_abs;
    const double dv = (n + 4) * kEps * s.variance + 2 * mean * std::sqrt(s.variance) + mean * mean;
    relative_rstd = dv / (2 * (s.variance + epsilon)) + 3 * kEps;
    rstd = 1 / std::sqrt(s.variance + epsilon);
  }
};

template <typename T>
void test_residual_norm(const KernelTable& table, int64_t rows, int64_t width, bool with_branch,
                        bool with_sum, float p, double offset_of_mean) {
  auto x = Buffer<T>::normal(rows * width, 1, 1, 1);
  for (int64_t i = 0; i < x.size(); ++i) x[i] = T(static_cast<float>(x.at(i) + offset_of_mean));
  const auto branch = Buffer<T>::normal(rows * width, 2, 0.5, 3);
  const auto gamma = Buffer<float>::normal(width, 3, 1, 1), beta = Buffer<float>::normal(width, 4, 1, 3);
  struct Out {
    Buffer<T> sum, y;
    Buffer<float> mean, rstd;
  };
  const auto run = [&](const KernelTable& t) {
    Out out{Buffer<T>(rows * width, 1), Buffer<T>(rows * width, 3), Buffer<float>(rows, 1),
            Buffer<float>(rows, 1)};
    t.typed<T>().residual_norm({.rows = rows,
                                .width = width,
                                .x = x.data(),
                                .branch = with_branch ? branch.data() : nullptr,
                                .dropout = {.p = p, .key = kTestKey, .first_row = 77},
                                .gamma = gamma.data(),
                                .beta = beta.data(),
                                .epsilon = 1e-5f,
                                .sum = with_sum ? out.sum.data() : nullptr,
                                .y = out.y.data(),
                                .mean = out.mean.data(),
                                .rstd = out.rstd.data()});
    return out;
  };
  const Out got = run(table), want = run(generic_kernels());
  Buffer<T> sum = x;  // as the kernel should compute it
  if (with_branch) {
    Buffer<T> dropped(rows * width);
    generic_kernels().typed<T>().dropout(rows, width, branch.data(),
                                         {.p = p, .key = kTestKey, .first_row = 77}, dropped.data());
    // One product and one sum, perhaps fused: the product's rounding (and the store's).
    expect_close(
        got.sum, want.sum,
        [&](int64_t i) {
          if (!with_sum) return 0.0;
          return p == 0 ? 0.0 : kEps * std::abs(dropped.at(i)) + kStoreEps<T> * std::abs(want.sum.at(i));
        },
        "sum");
    for (int64_t i = 0; i < sum.size(); ++i)
      sum[i] = with_sum ? want.sum[i] : T(static_cast<float>(x.at(i) + dropped.at(i)));
  } else if (with_sum) {
    expect_same_bits(got.sum, x, "sum");
  } else {
    expect_same_bits(got.sum, want.sum, "sum not asked for");
  }
  for (int64_t r = 0; r < rows; ++r) {
    const RowStatistics s = statistics(sum, r, width);
    const NormBounds bounds(s, width, 1e-5);
    EXPECT_NEAR(got.mean[r], want.mean[r], 2 * bounds.mean);
    EXPECT_NEAR(got.rstd[r], want.rstd[r], 2 * bounds.relative_rstd * bounds.rstd);
  }
  expect_close(
      got.y, want.y,
      [&](int64_t i) {
        const RowStatistics s = statistics(sum, i / width, width);
        const NormBounds bounds(s, width, 1e-5);
        const double g = std::abs(gamma.at(i % width)), b = std::abs(beta.at(i % width));
        const double normalized = std::abs(sum.at(i) - s.mean) * bounds.rstd;
        const double one =
            g * (bounds.mean * bounds.rstd + normalized * (bounds.relative_rstd + 3 * kEps)) + kEps * b;
        // A fused sum whose rounding differs by an ulp moves the bf16 sum by a whole one.
        const double moved = p > 0 ? g * bounds.rstd * kStoreEps<T> * std::abs(sum.at(i)) : 0;
        return 2 * one + moved + kStoreEps<T> * std::abs(want.y.at(i));
      },
      "y");
  EXPECT_TRUE(got.mean.guards_intact() && got.rstd.guards_intact());
}

TYPED_TEST(Rows, ResidualNorm) {
  for_simd_tables([&](const KernelTable& table) {
    for (const int64_t width : kAwkwardSizes) {
      SCOPED_TRACE(::testing::Message() << "width " << width);
      const int64_t rows = width > 100 ? 2 : 3;
      test_residual_norm<TypeParam>(table, rows, width, false, false, 0, 0);
      test_residual_norm<TypeParam>(table, rows, width, false, true, 0, 5);
      test_residual_norm<TypeParam>(table, rows, width, true, true, 0, 0);
      test_residual_norm<TypeParam>(table, rows, width, true, true, 0.3f, 5);
      test_residual_norm<TypeParam>(table, rows, width, true, false, 0.3f, 0);
    }
    test_residual_norm<TypeParam>(table, 0, 16, true, true, 0, 0);
  });
}

// The dropout of the residual branch is the dropout kernel's, with the row's global index.
TYPED_TEST(Rows, ResidualNormDropsWhatDropoutDrops) {
  using T = TypeParam;
  for (int i = 0; i < kernel_table_count(); ++i) {
    const int64_t rows = 4, width = 37;
    const Dropout dropout{.p = 0.5f, .key = kTestKey, .first_row = 9};  // a power of two: products are exact
    const auto zero = Buffer<T>::constant(rows * width, 0), branch = Buffer<T>::normal(rows * width, 1);
    const auto ones = Buffer<float>::constant(width, 1);
    Buffer<T> want(rows * width), sum(rows * width), y(rows * width);
    Buffer<float> mean(rows), rstd(rows);
    generic_kernels().typed<T>().dropout(rows, width, branch.data(), dropout, want.data());
    kernel_table(i).typed<T>().residual_norm({rows, width, zero.data(), branch.data(), dropout, ones.data(),
                                              ones.data(), 1e-5f, sum.data(), y.data(), mean.data(),
                                              rstd.data()});
    expect_close(
        sum, want, [](int64_t) { return 0.0; }, "sum");
  }
}

// With n = (s - mean) rstd and g = dy gamma, the three terms of d_sum = rstd (g - mean(g) - n mean(g n)) err
// by (width + 6) eps of their magnitudes, in which |n| counts as (|s| + |mean|) rstd since s - mean may
// cancel. dgamma and dbeta are sums over the rows.
template <typename T>
void test_residual_norm_grad(const KernelTable& table, int64_t rows, int64_t width, bool with_input) {
  const auto dy = Buffer<T>::normal(rows * width, 1, 1, 1), sum = Buffer<T>::normal(rows * width, 2, 2, 3);
  const auto in = Buffer<T>::normal(rows * width, 3, 1, 1);
  const auto gamma = Buffer<float>::normal(width, 4, 1, 1);
  Buffer<float> mean(rows), rstd(rows);
  for (int64_t r = 0; r < rows; ++r) {
    const RowStatistics s = statistics(sum, r, width);
    mean[r] = static_cast<float>(s.mean);
    rstd[r] = static_cast<float>(1 / std::sqrt(s.variance + 1e-5));
  }
  struct Out {
    Buffer<T> dsum;
    Buffer<float> dgamma, dbeta;
  };
  const auto run = [&](const KernelTable& t) {
    Out out{Buffer<T>(rows * width, 3), Buffer<float>::normal(width, 5, 1, 1),
            Buffer<float>::normal(width, 6, 1, 3)};
    t.typed<T>().residual_norm_grad({rows, width, dy.data(), with_input ? in.data() : nullptr, sum.data(),
                                     gamma.data(), mean.data(), rstd.data(), out.dsum.data(),
                                     out.dgamma.data(), out.dbeta.data()});
    return out;
  };
  const Out got = run(table), want = run(generic_kernels());
  const auto n_size = [&](int64_t r, int64_t c) {
    return (std::abs(sum.at(r * width + c)) + std::abs(mean.at(r))) * rstd.at(r);
  };
  std::vector<double> mean_g(rows), mean_gn(rows);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) {
      const double g = std::abs(dy.at(r * width + c) * gamma.at(c)) / static_cast<double>(width);
      mean_g[r] += g;
      mean_gn[r] += g * n_size(r, c);
    }
  expect_close(
      got.dsum, want.dsum,
      [&](int64_t i) {
        const int64_t r = i / width, c = i % width;
        const double terms = std::abs(dy.at(i) * gamma.at(c)) + mean_g[r] + n_size(r, c) * mean_gn[r];
        return 2 * (static_cast<double>(width) + 6) * kEps * rstd.at(r) * terms +
               kEps * (with_input ? std::abs(in.at(i)) : 0) + kStoreEps<T> * std::abs(want.dsum.at(i));
      },
      "dsum");
  const auto column_bound = [&](int64_t c, bool times_n) {
    double size = std::abs(Buffer<float>::normal(width, times_n ? 5 : 6).at(c));
    for (int64_t r = 0; r < rows; ++r) size += std::abs(dy.at(r * width + c)) * (times_n ? n_size(r, c) : 1);
    return 2 * static_cast<double>(rows + 3) * kEps * size;
  };
  expect_close(
      got.dgamma, want.dgamma, [&](int64_t c) { return column_bound(c, true); }, "dgamma");
  expect_close(
      got.dbeta, want.dbeta, [&](int64_t c) { return column_bound(c, false); }, "dbeta");
}

TYPED_TEST(Rows, ResidualNormGrad) {
  for_simd_tables([&](const KernelTable& table) {
    for (const int64_t width : kAwkwardSizes)
      for (const bool with_input : {false, true}) {
        SCOPED_TRACE(::testing::Message() << "width " << width << ", dsum_in " << with_input);
        test_residual_norm_grad<TypeParam>(table, width > 100 ? 2 : 4, width, with_input);
      }
    test_residual_norm_grad<TypeParam>(table, 0, 16, true);
  });
}

// p_j = exp(z_j - top) / sum: the difference is one rounding, so exp is off by eps |z_j - top| relatively and
// the sum, whose large terms have small differences, by (vocab + 4) eps. The loss adds top and z[target].
template <typename T>
void test_cross_entropy(const KernelTable& table, int64_t vocab, int64_t stride, double amplitude,
                        bool in_place, float smoothing = 0, float z_loss = 0) {
  const int64_t rows = 4;
  auto logits = Buffer<float>::normal(rows * stride, 1, amplitude, 1);
  if (vocab > 2 && smoothing == 0)
    logits[stride + 1] = -std::numeric_limits<float>::infinity();  // a masked token
  const std::vector<int32_t> target = {0, static_cast<int32_t>(vocab - 1), kIgnored,
                                       static_cast<int32_t>(vocab / 2)};
  const float scale = 0.25f;
  struct Out {
    Buffer<float> losses;
    Buffer<T> dlogits;
  };
  const auto run = [&](const KernelTable& t, bool gradient) {
    Out out{Buffer<float>(rows, 1), Buffer<T>(rows * stride, 3)};
    const float* z = logits.data();
    if constexpr (std::is_same_v<T, float>)
      if (in_place) {
        out.dlogits = logits;
        z = out.dlogits.data();
      }
    t.typed<T>().cross_entropy({rows, vocab, z, stride, target.data(), scale, out.losses.data(),
                                gradient ? out.dlogits.data() : nullptr, smoothing, z_loss});
    return out;
  };
  const Out got = run(table, true), want = run(generic_kernels(), true);
  std::vector<double> top(rows, -1e300);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < vocab; ++j) top[r] = std::max(top[r], logits.at(r * stride + j));
  expect_close(
      got.losses, want.losses,
      [&](int64_t r) {
        if (target[r] == kIgnored) return 0.0;
        const double z = std::abs(logits.at(r * stride + target[r]));
        // With the terms of training: a mean over the vocabulary, and the square of log Z.
        const double terms = smoothing * amplitude * static_cast<double>(vocab) + z_loss * top[r] * top[r];
        return kEps * (static_cast<double>(vocab) + 8 + 2 * std::abs(top[r]) + 2 * z + 8 * terms);
      },
      "losses");
  expect_close(
      got.dlogits, want.dlogits,
      [&](int64_t i) {
        const int64_t r = i / stride, j = i % stride;
        if (target[r] == kIgnored || j >= vocab) return 0.0;
        const bool hit = j == target[r];
        const double p = std::abs(want.dlogits.at(i) / scale + (hit ? 1 : 0) + smoothing),
                     below = top[r] - logits.at(i);
        const double relative = kEps * (std::min(below, 200.0) + static_cast<double>(vocab) + 8);
        // Implementations may flush subnormal results of exp to zero.
        return scale * (p * relative + (hit ? 2 * kEps : 0) + 0x1p-126) +
               kStoreEps<T> * std::abs(want.dlogits.at(i));
      },
      "dlogits");
  expect_same_bits(run(table, false).losses, got.losses, "losses without gradient");
}

TYPED_TEST(Rows, CrossEntropy) {
  for_simd_tables([&](const KernelTable& table) {
    for (const int64_t vocab : kAwkwardSizes)
      for (const int64_t padding : {0, 5})
        for (const double amplitude : {1.0, 20.0, 1e4}) {
          SCOPED_TRACE(::testing::Message() << "vocab " << vocab << ", amplitude " << amplitude);
          test_cross_entropy<TypeParam>(table, vocab, vocab + padding, amplitude, false);
          if (std::is_same_v<TypeParam, float>)
            test_cross_entropy<TypeParam>(table, vocab, vocab + padding, amplitude, true);
          if (amplitude <= 20)
            test_cross_entropy<TypeParam>(table, vocab, vocab + padding, amplitude, false, 0.1f, 1e-3f);
        }
  });
}

}  // namespace
}  // namespace qkv::row_kernels_test
