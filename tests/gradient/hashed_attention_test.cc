// LSH attention: gradients, what it sees, and full attention as a special case.
#include "qkv/ops/hashed_attention.h"

#include "qkv/ops/attention.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/parts.h"
#include "tests/gradient/gradient_check.h"
#include "tests/unit/expect_error.h"

namespace qkv::hashed_attention_test {
namespace {

using testing::expect_error;
using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

constexpr int64_t kHeads = 2, kWidth = 3;
const std::vector<int32_t> kOffsets = {0, 1, 20, 20, 27};

Tensor normal(Shape shape, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> draw;
  std::vector<float> x(static_cast<size_t>(shape.count()));
  for (float& v : x) v = draw(rng);
  return Tensor::of(shape, x);
}
Tensor rotations(const HashedAttention& o, uint64_t seed) {
  return normal({kHeads, kWidth, o.rounds, o.columns()}, seed);
}
std::vector<int32_t> all_buckets(const Tensor& q, const Tensor& r, const HashedAttention& o) {
  std::vector<int32_t> all;
  for (int64_t h = 0; h < kHeads; ++h) {
    const std::vector<int32_t> of_head = hash_buckets(q, r, o, h, 0, q.dim(0));
    all.insert(all.end(), of_head.begin(), of_head.end());
  }
  return all;
}
// Queries whose buckets a change of any number by `reach` leaves as they are.
Tensor steady_queries(const Tensor& r, const HashedAttention& o, float reach) {
  for (uint64_t seed = 1;; ++seed) {
    Tensor q = uniform({kOffsets.back(), kHeads * kWidth}, seed);
    const std::vector<int32_t> buckets = all_buckets(q, r, o);
    bool steady = true;
    for (int64_t i = 0; i < q.count() && steady; ++i)
      for (const float change : {reach, -2 * reach, reach}) {
        q.mutable_values<float>()[i] += change;
        steady = steady && all_buckets(q, r, o) == buckets;
      }
    if (steady) return q;
  }
}

std::vector<HashedAttentionOptions> variants() {
  const HashedAttention two{.chunk = 4, .before = 1, .rounds = 2, .buckets = {4}, .multiple = 4, .whole = 3},
      factors{.chunk = 3, .before = 0, .after = 1, .rounds = 3, .buckets = {2, 2}, .multiple = 6, .whole = 3},
      ordered{.chunk = 4, .before = 1, .after = 1, .multiple = 4};
  HashedAttention same = two;
  same.same_bucket = true;
  return {{.order = two, .heads = kHeads, .scale = 0.5F},
          {.order = factors, .heads = kHeads, .causal = false},
          {.order = same, .heads = kHeads},
          {.order = same, .heads = kHeads, .causal = false, .own_last = false},
          {.order = ordered, .heads = kHeads, .causal = false, .own_last = false},
          {.order = two, .heads = kHeads, .dropout = {0.3F, DropoutKey::from({3, 1, 2}), 5}},
          {.order = two, .heads = kHeads, .padded_length = 24}};
}

TEST(HashedAttentionGradient, IsTheDifference) {
  constexpr double kH = 0x1p-8;
  for (const HashedAttentionOptions& o : variants()) {
    const Tensor r = o.order.buckets.empty() ? Tensor() : rotations(o.order, 5);
    const Tensor q = r.defined() ? steady_queries(r, o.order, 2 * kH) : uniform({kOffsets.back(), 6}, 1);
    // In bf16 queries are rounded, and hashed after that.
    expect_gradients(
        [&](const Tensors& in) { return Tensors{hashed_attention(in[0], in[1], in[2], r, kOffsets, o)}; },
        {q, uniform({kOffsets.back(), 6}, 2), uniform({kOffsets.back(), 8}, 3)},
        {.h = kH, .fifth = 60000, .roundings = 256, .keep_f32 = {0, 1, 2}, .bf16 = false});
  }
}

// If each chunk sees all others, hashes do not matter.
TEST(HashedAttention, OfOneWindowIsFullAttention) {
  const std::vector<int32_t> offsets = {0, 12, 24, 30};
  const Tensor q = uniform({30, 6}, 1), k = uniform({30, 6}, 2), v = uniform({30, 8}, 3);
  for (const bool causal : {true, false})
    for (const DType type : {DType::f32, DType::bf16}) {
      const auto of = [&](const Tensor& x) { return convert(x, type); };
      Mask mask = causal ? Mask::causal() : Mask::full();
      mask.own_last = true;
      const Tensor want =
          attention({of(q), 0, 2, 3}, {of(k), 0, 2, 3}, {of(v), 0, 2, 4}, offsets,
                    KeyLayout::contiguous(offsets), {.mask = mask, .scale = 0.5F, .dropout = {}});
      for (const HashedAttention& o :
           {HashedAttention{.chunk = 12, .rounds = 2, .buckets = {4}, .multiple = 12, .whole = 12},
            {.chunk = 6, .before = 1, .rounds = 1, .buckets = {4}, .multiple = 6, .whole = 6},
            {.chunk = 4,
            .before = 1,
            .after = 1,
            .rounds = 1,
            .buckets = {2, 2},
            .multiple = 4,
            .whole = 4}}) {
        if (o.chunk == 4 && type == DType::bf16) continue;
        const Tensor got = hashed_attention(of(q), of(k), of(v), rotations(o, 4), offsets,
                                            {.order = o, .heads = 2, .causal = causal, .scale = 0.5F});
        for (int64_t i = 0; i < (o.chunk == 4 ? 24 : 30) * 8;
             ++i)  // windows of 3 chunks see some of 6 tokens twice
          EXPECT_NEAR(testing::floats(got)[i], testing::floats(want)[i], type == DType::f32 ? 2e-6 : 2e-2);
      }
    }
}

// A key counts once, however many rounds show it: in buckets that hold all, the paper's rule is full
// attention.
TEST(HashedAttention, CountsKeysOnceInTheirBucket) {
  const std::vector<int32_t> offsets = {0, 8};
  const Tensor k = uniform({8, 6}, 2), v = uniform({8, 8}, 3);
  Tensor q = Tensor::zeros({8, 6}, DType::f32);  // all in one bucket
  for (int64_t i = 0; i < q.count(); ++i) q.mutable_values<float>()[i] = 0.5F;
  const HashedAttention o{
      .chunk = 4, .before = 1, .rounds = 3, .buckets = {4}, .same_bucket = true, .multiple = 4, .whole = 4};
  Mask mask = Mask::causal();
  mask.own_last = true;
  const Tensor want = attention({q, 0, 2, 3}, {k, 0, 2, 3}, {v, 0, 2, 4}, offsets,
                                KeyLayout::contiguous(offsets), {.mask = mask, .dropout = {}}),
               got = hashed_attention(q, k, v, rotations(o, 4), offsets, {.order = o, .heads = 2});
  for (int64_t i = 0; i < got.count(); ++i)
    EXPECT_NEAR(got.values<float>()[i], want.values<float>()[i], 2e-6);
}

// With the paper's rule a query sees the keys of its bucket alone, even if its chunks hold others.
TEST(HashedAttention, SeesNoOtherBucket) {
  const Tensor k = uniform({8, 6}, 2), v = uniform({8, 8}, 3);
  Tensor q = Tensor::zeros({8, 6}, DType::f32);  // opposite queries: two buckets in each round
  for (int64_t i = 0; i < q.count(); ++i) q.mutable_values<float>()[i] = i / 6 < 4 ? 0.5F : -0.5F;
  const HashedAttention o{
      .chunk = 4, .before = 1, .rounds = 3, .buckets = {4}, .same_bucket = true, .multiple = 4, .whole = 4};
  Mask mask = Mask::causal();
  mask.own_last = true;
  const std::vector<int32_t> buckets = {0, 4, 8};
  const Tensor want = attention({q, 0, 2, 3}, {k, 0, 2, 3}, {v, 0, 2, 4}, buckets,
                                KeyLayout::contiguous(buckets), {.mask = mask, .dropout = {}}),
               got = hashed_attention(q, k, v, rotations(o, 4), std::vector<int32_t>{0, 8},
                                      {.order = o, .heads = 2});
  for (int64_t i = 0; i < got.count(); ++i)
    EXPECT_NEAR(got.values<float>()[i], want.values<float>()[i], 2e-6);
}

// Two chunks in a ring, of which each sees the three before itself: one step before is the other, two are
// itself again, and three, more than there are chunks, are itself, too.
TEST(HashedAttention, TakesNoStepsBeyondTheRing) {
  const Tensor zeros = Tensor::zeros({4, 6}, DType::f32);
  const HashedAttentionOptions o{.order = {.chunk = 2, .before = 3, .multiple = 2, .whole = 2},
                                 .heads = 2,
                                 .causal = false,
                                 .own_last = false};
  visit_hashed_probabilities(
      zeros, zeros, {}, std::vector<int32_t>{0, 4}, o, HashedView::together, [](int64_t, int64_t, Tensor& p) {
        for (int64_t query = 0; query < 4; ++query)
          for (int64_t key = 0; key < 4; ++key)
            EXPECT_FLOAT_EQ(p.row<float>(query)[key], query / 2 == key / 2 ? 0.375F : 0.125F);
      });
}

TEST(HashedAttention, GivesEachSequenceItsBitsInAnyCompany) {
  for (const HashedAttentionOptions& o : variants()) {
    if (o.dropout.on()) continue;
    const Tensor r = o.order.buckets.empty() ? Tensor() : rotations(o.order, 5);
    const Tensor q = uniform({27, 6}, 1), k = uniform({27, 6}, 2), v = uniform({27, 8}, 3);
    const Tensor all = hashed_attention(q, k, v, r, kOffsets, o);
    for (size_t s = 0; s + 1 < kOffsets.size(); ++s) {
      const int32_t begin = kOffsets[s], end = kOffsets[s + 1];
      const Tensor alone =
          hashed_attention(q.slice_rows(begin, end), k.slice_rows(begin, end), v.slice_rows(begin, end), r,
                           std::vector<int32_t>{0, end - begin}, o);
      for (int64_t t = begin; t < end; ++t)
        EXPECT_TRUE(std::ranges::equal(alone.row<float>(t - begin), all.row<float>(t))) << t;
    }
  }
}

// The probabilities that are shown make the output.
TEST(HashedAttention, ShowsItsProbabilities) {
  for (const HashedAttentionOptions& o : variants()) {
    if (o.dropout.on()) continue;
    const Tensor r = o.order.buckets.empty() ? Tensor() : rotations(o.order, 5);
    const Tensor q = uniform({27, 6}, 1), k = uniform({27, 6}, 2), v = uniform({27, 8}, 3);
    const Tensor y = hashed_attention(q, k, v, r, kOffsets, o);
    int seen = 0;
    visit_hashed_probabilities(
        q, k, r, kOffsets, o, HashedView::together, [&](int64_t s, int64_t h, Tensor& p) {
          for (int64_t i = 0; i < p.dim(0); ++i)
            for (int64_t e = 0; e < 4; ++e) {
              double sum = 0;
              for (int64_t j = 0; j < p.dim(1); ++j)
                sum += double{p.row<float>(i)[j]} * v.row<float>(kOffsets[s] + j)[h * 4 + e];
              EXPECT_NEAR(sum, y.row<float>(kOffsets[s] + i)[h * 4 + e], 2e-6);
            }
          ++seen;
        });
    EXPECT_EQ(seen, 8);
    visit_hashed_probabilities(q, k, r, kOffsets, o, HashedView::by_chunk, [&](int64_t, int64_t, Tensor& p) {
      double sum = 0;
      for (const float x : p.values<float>()) sum += x;
      EXPECT_NEAR(sum, std::round(sum), 1e-4);  // each query's are 1 together
    });
  }
}

TEST(HashedAttention, UsesTheBucketsThatHuggingFaceChooses) {
  EXPECT_EQ(usual_buckets(4096, 64), (std::vector<int64_t>{128}));
  EXPECT_EQ(usual_buckets(65536, 64), (std::vector<int64_t>{32, 64}));
  EXPECT_EQ(usual_buckets(24, 6), (std::vector<int64_t>{8}));
  EXPECT_EQ(usual_buckets(3, 6), (std::vector<int64_t>{2}));
}

TEST(HashedAttention, ChecksItsInput) {
  const HashedAttention o{.chunk = 4, .rounds = 2, .buckets = {4}, .multiple = 4};
  const Tensor q = uniform({27, 6}, 1), v = uniform({27, 8}, 3), r = rotations(o, 1);
  const HashedAttentionOptions options{.order = o, .heads = 2};
  expect_error([&] { hashed_attention(q, q, v, {}, kOffsets, options); }, {"rotations f32 [2, 3, 2, 2]"});
  expect_error([&] { hashed_attention(q, v, v, r, kOffsets, options); }, {"keys like queries"});
  expect_error([&] { hashed_attention(q, q, q.slice_rows(0, 3), r, kOffsets, options); }, {"values [27"});
  expect_error([&] { hashed_attention(q, q, v, r, std::vector<int32_t>{0, 4}, options); }, {"offsets"});
  HashedAttentionOptions odd = options;
  odd.order.buckets = {3};
  expect_error([&] { hashed_attention(q, q, v, r, kOffsets, odd); }, {"even"});
  odd.order = {.rounds = 1};
  expect_error([&] { hashed_attention(q, q, v, r, kOffsets, odd); }, {"above 0"});
  expect_error([&] { hash_buckets(q, r, o, 2, 0, 27); }, {"do not fit"});
}

}  // namespace
}  // namespace qkv::hashed_attention_test
