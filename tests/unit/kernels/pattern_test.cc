// Patterns: their tiles against their pairs, their text form, and their use in models.
// Covers: qkv/models/pattern_text.cc
#include <gtest/gtest.h>

#include <random>

#include "qkv/kernels/mask.h"
#include "qkv/models/transformer.h"
#include "tests/unit/expect_error.h"

namespace qkv::pattern_test {
namespace {

Pattern random_pattern(std::mt19937& rng) {
  const auto below = [&](int n) { return static_cast<int64_t>(rng() % static_cast<unsigned>(n)); };
  Pattern p;
  if (below(2)) p.window = 1 + below(20);
  if (p.window > 0 && below(2)) p.dilation = 1 + below(5);
  if (below(3) == 0) p.stride = 1 + below(15);
  if (below(3) == 0) p.global = 1 + below(4);
  if (below(2)) {
    p.block = 1 + below(12);
    p.neighbours = below(3);
    p.summary = below(3) ? 0 : below(static_cast<int>(p.block) + 1);
    p.ends = below(2);
    p.random = below(3);
    if (p.ends && below(2)) p.first_block = 3;
  }
  return p;
}

// Padding keys, which patterns count, are not keys other than one's own.
TEST(Mask, OneTokenOfAPaddedBatchSeesItself) {
  Mask mask = Mask::full();
  mask.own_last = true;
  EXPECT_TRUE(mask.of_length(1, 10).allows(0, 0));
  EXPECT_FALSE(mask.of_length(2, 10).allows(0, 0));
  EXPECT_TRUE(mask.of_length(2, 10).allows(0, 1));
}

// A pattern sees nothing in tiles that it calls empty, or outside its range of keys. It sees all of a tile
// that it calls full, and each pair there counts once.
TEST(Pattern, TilesAgreeWithPairs) {
  std::mt19937 rng(5);
  int counts[3] = {};
  for (int trial = 0; trial < 4000; ++trial) {
    const auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); };
    const int64_t length = 1 + below(90);
    const Mask stack = trial % 2 ? Mask::causal() : Mask::full();
    Mask mask = stack.with(random_pattern(rng)).of_length(length);
    std::vector<int32_t> globals = {0};
    for (int64_t i = 0; i < length; ++i) globals.push_back(globals.back() + (below(12) == 0));
    if (trial % 4 == 0) mask.globals = globals.data();
    mask.own_last = trial % 3 == 0;
    SCOPED_TRACE(text_of(mask.pattern) + (trial % 2 ? ", causal" : ", full"));
    const int64_t q0 = below(length), q1 = q0 + 1 + below(length - q0), k0 = below(length),
                  k1 = k0 + 1 + below(length - k0);
    const TileCover cover = mask.cover(q0, q1, k0, k1);
    ++counts[static_cast<int>(cover)];
    for (int64_t q = q0; q < q1; ++q)
      for (int64_t k = 0; k < length; ++k) {
        if (mask.allows(q, k)) {
          ASSERT_GE(k, mask.first_key(q0));
          ASSERT_LT(k, mask.end_key(q1, length));
        }
        if (k < k0 || k >= k1 || cover == TileCover::mixed) continue;
        ASSERT_EQ(mask.allows(q, k), cover == TileCover::full) << q << " " << k;
        if (cover == TileCover::full) {
          ASSERT_EQ(mask.raise(q, k), 0);
        }
      }
  }
  for (const int n : counts) EXPECT_GT(n, 300);
}

// Patterns recognise empty tiles: for a window, for blocks, for a stride larger than a tile.
TEST(Pattern, EmptyTilesAreFound) {
  const auto emptied = [](const Pattern& p) {
    const Mask mask = Mask::causal().with(p).of_length(4096);
    int64_t empty = 0;
    for (int64_t q = 0; q < 4096; q += 64)
      for (int64_t k = 0; k <= q; k += 64) empty += mask.cover(q, q + 64, k, k + 64) == TileCover::empty;
    return empty;
  };
  const int64_t all = 64 * 65 / 2;
  EXPECT_EQ(emptied({.window = 128}), all - 3 * 64 + 3);
  EXPECT_EQ(emptied({.block = 64, .neighbours = 1}), all - 2 * 64 + 1);
  EXPECT_EQ(emptied({.window = 1, .stride = 1024}), all - 64 - 48 - 32 - 16);
  EXPECT_EQ(emptied({.window = 128, .global = 1}), all - (3 * 64 - 3) - 61);
}

TEST(Pattern, ComesBackFromItsText) {
  std::mt19937 rng(6);
  for (int trial = 0; trial < 200; ++trial) {
    const Pattern p = random_pattern(rng);
    EXPECT_EQ(pattern_from_text(text_of(p)), p) << text_of(p);
  }
  EXPECT_EQ(text_of({.window = 256, .dilation = 2, .global = 1}), "window 256 dilated 2 global 1");
  EXPECT_EQ(text_of({}), "all");
  for (const char* bad : {"", "windows 3", "window", "window x", "window -1", "dilated 2", "all window 3"})
    EXPECT_THROW(pattern_from_text(bad), Error) << bad;
}

// Under every pattern a sequence gets the same result in a batch as alone.
TEST(Pattern, NeighboursInTheBatchDoNotMatter) {
  for (const bool decoder : {false, true})
    for (const char* text :
         {"window 3", "window 2 dilated 2", "stride 3", "window 2 global 1", "block 3",
          "block 2 neighbours 1 ends random 1", "block 4 summary 1", "window 2 beyond 5"}) {
      SCOPED_TRACE(text);
      if (decoder && pattern_from_text(text).beyond > 0) continue;  // which is rejected
      ModelSpec s = decoder ? gpt2_spec(11, 16, 12, 2, 3) : bert_spec(11, 16, 12, 2, 3);
      s.attention.patterns = {pattern_from_text(text)};
      check_spec(s);
      Transformer model(s);
      model.parameters().draw(3, DType::f32);
      const NoGrad guard;
      const std::vector<int32_t> lengths = {5, 16, 1, 9};
      std::vector<int32_t> ids;
      for (const int32_t n : lengths)
        for (int32_t i = 0; i < n; ++i) ids.push_back((3 * i + n) % 11);
      const auto hidden = [&](const std::vector<int32_t>& tokens, const std::vector<int32_t>& of) {
        return model.hidden({tokens, Layout::of(of)}, {});
      };
      const Tensor all = hidden(ids, lengths);
      int64_t at = 0;
      for (const int32_t n : lengths) {
        const Tensor alone = hidden({ids.begin() + at, ids.begin() + at + n}, {n});
        for (int64_t i = 0; i < alone.count(); ++i)
          ASSERT_NEAR(alone.data<float>()[i], all.data<float>()[at * s.width + i], 1e-5);
        at += n;
      }
    }
}

// Hidden tokens do not change the output; visible ones do.
TEST(Pattern, OnlySeenTokensMatter) {
  ModelSpec s = gpt2_spec(11, 16, 12, 1, 3);
  s.attention.patterns = {pattern_from_text("window 2 stride 5 global 1")};
  Transformer model(s);
  s.init_std = 0.5F;
  model.parameters().draw(3, DType::f32);
  const NoGrad guard;
  std::vector<int32_t> ids(13, 4);
  const auto last = [&] {
    const Tensor x = model.hidden({ids, Layout::of({13})}, {});
    return std::vector<float>(x.data<float>() + 12 * 12, x.data<float>() + 13 * 12);
  };
  const auto before = last();
  for (int64_t k = 0; k < 13; ++k) {
    ids[k] = 7;
    const bool seen = k >= 11 || k == 7 || k == 2 || k == 0;
    EXPECT_EQ(last() != before, seen) << k;
    ids[k] = 4;
  }
}

}  // namespace
}  // namespace qkv::pattern_test
