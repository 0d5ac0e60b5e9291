// T5's buckets of distances, and the gradient of what they add to the scores.
#include "qkv/ops/relative_bias.h"

#include <set>

#include "tests/gradient/gradient_check.h"

namespace qkv::relative_bias_test {
namespace {

using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

TEST(DistanceBuckets, SmallDistancesHaveOneEach) {
  const DistanceBuckets both{32, 128, true}, before{32, 128, false};
  for (int64_t d = 0; d < 8; ++d) {
    EXPECT_EQ(both.of(-d), d);
    EXPECT_EQ(both.of(d), d == 0 ? 0 : 16 + d);
  }
  for (int64_t d = 0; d < 16; ++d) {
    EXPECT_EQ(before.of(-d), d);
    EXPECT_EQ(before.of(d), 0);  // keys behind the query, which a causal mask hides
  }
}

// 16 + 16 log(d / 16) / log(128 / 16), rounded down: 16 places of a factor 8^(1/16) each.
TEST(DistanceBuckets, LargeOnesGrowByAFactor) {
  const DistanceBuckets before{32, 128, false};
  EXPECT_EQ(before.of(-16), 16);
  EXPECT_EQ(before.of(-32), 21);  // 16 + 16 / 3
  EXPECT_EQ(before.of(-100), 30);
  EXPECT_EQ(before.of(-128), 31);
  EXPECT_EQ(before.of(-100000), 31);
  int64_t last = 0;
  std::set<int64_t> all;
  for (int64_t d = 0; d < 200; ++d) {
    EXPECT_GE(before.of(-d), last);
    all.insert(last = before.of(-d));
  }
  EXPECT_EQ(all.size(), 32u);
}

TEST(DistanceBuckets, OfEachDistance) {
  const DistanceBuckets both = DistanceBuckets::of_each(3, true), before = DistanceBuckets::of_each(3, false);
  EXPECT_EQ(both.count, 5);
  EXPECT_EQ(before.count, 3);
  const int64_t distances[] = {-9, -3, -2, -1, 0, 1, 2, 3, 9}, in_both[] = {2, 2, 2, 1, 0, 3, 4, 4, 4};
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(both.of(distances[i]), in_both[i]) << distances[i];
    EXPECT_EQ(before.of(distances[i]), distances[i] < 0 ? in_both[i] : 0) << distances[i];
  }
  EXPECT_EQ(DistanceBuckets::of_each(1, true).of(5), 0);
}

TEST(RelativeBias, PutsTheTableAtItsDistances) {
  const Tensor table = uniform({8, 3}, 1);
  const DistanceBuckets buckets{8, 16, true};
  const Tensor bias = relative_bias(table, buckets, 5);
  ASSERT_EQ(bias.shape(), (Shape{3, 11}));
  for (int64_t h = 0; h < 3; ++h)
    for (int64_t query = 0; query < 6; ++query)
      for (int64_t key = 0; key < 6; ++key)
        EXPECT_EQ(bias.data<float>()[h * 11 + 5 + query - key],
                  table.data<float>()[buckets.of(key - query) * 3 + h]);
}

TEST(RelativeBiasGradient, IsTheDifference) {
  for (const int64_t reach : {0, 3, 40})
    expect_gradients(
        [&](const Tensors& in) {
          return Tensors{relative_bias(in[0], DistanceBuckets{8, 16, true}, reach)};
        },
        {uniform({8, 3}, 1)}, {.h = 0.5, .roundings = 8, .keep_f32 = {0}});
  EXPECT_THROW(relative_bias(uniform({7, 3}, 1), DistanceBuckets{8, 16, true}, 3), Error);
}

}  // namespace
}  // namespace qkv::relative_bias_test
