// Covers: qkv/ops/attention_unfused.cc, qkv/ops/attention_arguments.cc
// Gradients of attention: layouts of q, k and v, grouped heads, widths, masks, sequences, dropout.
#include "qkv/ops/attention_unfused.h"
#include "tests/gradient/gradient_check.h"

namespace qkv::attention_test {
namespace {

using testing::Check;
using testing::uniform;
using Tensors = std::vector<Tensor>;

struct Case {
  std::vector<int32_t> lengths;
  int64_t heads, kv_heads, d_qk, d_vo;
  Mask mask;
  float dropout = 0;
  bool table = false;  // a table of visible keys instead of the mask, in which every fifth query sees none

  std::vector<int32_t> offsets() const {
    std::vector<int32_t> o = {0};
    for (const int32_t n : lengths) o.push_back(o.back() + n);
    return o;
  }
  int64_t rows() const { return offsets().back(); }
  AttentionOptions options() const {
    AttentionOptions o{
        mask, {}, {}, 1 / std::sqrt(static_cast<float>(d_qk)), {dropout, DropoutKey::from({5, 9, 2}), 3}};
    if (!table) return o;
    std::vector<int32_t> seen;
    for (const int32_t n : lengths)
      for (int32_t query = 0; query < n; ++query)
        for (int32_t key = 0; key < n; ++key)  // here and there a tile in which all or none are seen
          seen.push_back(query % 5 != 3 &&
                         (key / 64 == 1 || (key / 64 == 0 && (query * 7 + key * 5) % 4 < 2)));
    o.visibility.table = std::move(seen);
    return o;
  }
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  out << "lengths";
  for (const int32_t n : c.lengths) out << " " << n;
  return out << ", heads " << c.heads << "/" << c.kv_heads << ", widths " << c.d_qk << " " << c.d_vo
             << (c.table                             ? ", table"
                 : c.mask.kind == Mask::Kind::causal ? ", causal"
                                                     : ", full")
             << ", dropout " << c.dropout;
}

const Case kCases[] = {
    {{1}, 1, 1, 1, 1, Mask::causal()},
    {{3}, 1, 1, 3, 3, Mask::full()},
    {{17}, 3, 3, 5, 5, Mask::causal()},
    {{17}, 4, 2, 3, 17, Mask::full()},
    {{65}, 2, 1, 17, 3, Mask::causal()},
    {{65}, 1, 1, 3, 1, Mask::full()},
    {{130}, 2, 2, 3, 5, Mask::causal()},
    {{3, 1, 17}, 4, 2, 5, 3, Mask::causal()},
    {{1, 65, 0, 3}, 2, 1, 3, 3, Mask::causal()},
    {{3, 0, 66}, 2, 2, 1, 65, Mask::full()},
    {{17, 3}, 6, 2, 8, 16, Mask::causal(), 0.2F},
    {{65, 1}, 2, 2, 16, 8, Mask::full(), 0.5F},
    {{66}, 3, 1, 65, 17, Mask::causal(), 0.1F},
    {{17, 1}, 4, 2, 3, 17, Mask::sliding(1)},
    {{130}, 2, 2, 3, 5, Mask::sliding(7), 0.1F},
    {{200, 3}, 2, 1, 3, 3, Mask::sliding(70)},
    {{130, 1}, 2, 1, 3, 3, Mask::full().with({.window = 3, .stride = 40, .global = 1})},
    {{130, 9},
     2,
     2,
     5,
     3,
     Mask::causal().with({.window = 4, .dilation = 5, .block = 32, .summary = 3}),
     0.1F},
    {{90, 5},
     2,
     1,
     3,
     5,
     Mask::full().with({.block = 8, .neighbours = 1, .ends = true, .random = 1, .first_block = 2})},
    {{17, 1, 4}, 4, 2, 3, 5, Mask::full(), 0, true},
    {{200, 0, 3}, 2, 1, 3, 3, Mask::causal().with({.window = 2}), 0.1F, true},
};

// A sum over up to 130 keys of probabilities, whose exponent carries the rounding of a product of width 65.
// The probabilities are analytic in scores of size 1 and L's fifth derivatives are fifth cumulants of the
// values, at most 16 for each output that moves, with weights |r| <= 1 of either sign.
Check attention_check() {
  return {.fifth = 300, .roundings = 16, .bf16_roundings = 4, .coordinates = 60};
}

TEST(AttentionGradient, OfSeparateTensorsIsTheDifference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c);
    const auto offsets = c.offsets();
    testing::expect_gradients(
        [&](const Tensors& t) {
          return Tensors{attention({t[0], 0, c.heads, c.d_qk}, {t[1], 0, c.kv_heads, c.d_qk},
                                   {t[2], 0, c.kv_heads, c.d_vo}, offsets, KeyLayout::contiguous(offsets),
                                   c.options())};
        },
        {uniform({c.rows(), c.heads * c.d_qk}, 1), uniform({c.rows(), c.kv_heads * c.d_qk}, 2),
         uniform({c.rows(), c.kv_heads * c.d_vo}, 3)},
        attention_check());
    if (HasFailure()) return;
  }
}

// In the layout of a fused projection, with unused columns, whose gradient must be 0.
TEST(AttentionGradient, OfPackedHeadsIsTheDifference) {
  for (const Case& c : kCases)
    for (const int64_t spare : {0, 3}) {
      SCOPED_TRACE(::testing::Message() << c << ", spare columns " << spare);
      const auto offsets = c.offsets();
      const int64_t k = c.heads * c.d_qk, v = k + c.kv_heads * c.d_qk,
                    width = v + c.kv_heads * c.d_vo + spare;
      testing::expect_gradients(
          [&](const Tensors& t) {
            return Tensors{attention({t[0], 0, c.heads, c.d_qk}, {t[0], k, c.kv_heads, c.d_qk},
                                     {t[0], v, c.kv_heads, c.d_vo}, offsets, KeyLayout::contiguous(offsets),
                                     c.options())};
          },
          {uniform({c.rows(), width}, 4)}, attention_check());
      if (HasFailure()) return;
    }
}

// Capped scores, whose slope is a factor of every gradient, and a sink of each head.
TEST(AttentionGradient, OfCappedScoresAndSinksIsTheDifference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c);
    const auto offsets = c.offsets();
    Check check = attention_check();
    check.keep_f32 = {3};
    testing::expect_gradients(
        [&](const Tensors& t) {
          AttentionOptions options = c.options();
          options.cap = 1.5F;
          options.sinks = t[3];
          return Tensors{attention({t[0], 0, c.heads, c.d_qk}, {t[1], 0, c.kv_heads, c.d_qk},
                                   {t[2], 0, c.kv_heads, c.d_vo}, offsets, KeyLayout::contiguous(offsets),
                                   options)};
        },
        {uniform({c.rows(), c.heads * c.d_qk}, 1), uniform({c.rows(), c.kv_heads * c.d_qk}, 2),
         uniform({c.rows(), c.kv_heads * c.d_vo}, 3), uniform({c.heads}, 4)},
        check);
    if (HasFailure()) return;
  }
}

// A bias for each head and distance: its gradient, and the other gradients with it.
TEST(AttentionGradient, OfATermByDistanceIsTheDifference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c);
    const auto offsets = c.offsets();
    const int64_t reach = *std::max_element(c.lengths.begin(), c.lengths.end()) - 1;
    Check check = attention_check();
    check.keep_f32 = {3};
    testing::expect_gradients(
        [&](const Tensors& t) {
          AttentionOptions options = c.options();
          options.term = t[3];
          return Tensors{attention({t[0], 0, c.heads, c.d_qk}, {t[1], 0, c.kv_heads, c.d_qk},
                                   {t[2], 0, c.kv_heads, c.d_vo}, offsets, KeyLayout::contiguous(offsets),
                                   options)};
        },
        {uniform({c.rows(), c.heads * c.d_qk}, 1), uniform({c.rows(), c.kv_heads * c.d_qk}, 2),
         uniform({c.rows(), c.kv_heads * c.d_vo}, 3), uniform({c.heads, 2 * reach + 1}, 4)},
        check);
    if (HasFailure()) return;
  }
}

// Tables of queries and keys, added to the scores: their gradients, and the other gradients with them.
TEST(AttentionGradient, OfPairTablesIsTheDifference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c);
    const auto offsets = c.offsets();
    const int64_t reach = *std::max_element(c.lengths.begin(), c.lengths.end()) - 1;
    std::vector<int32_t> columns, segments;
    for (int64_t d = -reach; d <= reach; ++d) columns.push_back(static_cast<int32_t>((d + 3 * reach) % 3));
    for (int64_t r = 0; r < c.rows(); ++r) segments.push_back(static_cast<int32_t>(r / 2 % 2));
    Check check = attention_check();
    check.keep_f32 = {3, 4, 5};
    testing::expect_gradients(
        [&](const Tensors& t) {
          AttentionOptions options = c.options();
          options.pair = {t[3], t[4], columns, t[5], segments};
          return Tensors{attention({t[0], 0, c.heads, c.d_qk}, {t[1], 0, c.kv_heads, c.d_qk},
                                   {t[2], 0, c.kv_heads, c.d_vo}, offsets, KeyLayout::contiguous(offsets),
                                   options)};
        },
        {uniform({c.rows(), c.heads * c.d_qk}, 1), uniform({c.rows(), c.kv_heads * c.d_qk}, 2),
         uniform({c.rows(), c.kv_heads * c.d_vo}, 3), uniform({c.rows(), c.heads * 3}, 4),
         uniform({c.rows(), c.heads * 3}, 5), uniform({c.rows(), c.heads * 2}, 6)},
        check);
    if (HasFailure()) return;
  }
}

TEST(Attention, RefusesPairTablesThatDoNotFit) {
  const std::vector<int32_t> offsets = {0, 3};
  const Tensor x = uniform({3, 4}, 1);
  const Heads h{x, 0, 2, 2};
  AttentionOptions good;
  good.mask = Mask::full();
  good.pair.by_query = uniform({3, 4}, 2);
  good.pair.columns = Indices({0, 0, 0, 1, 1});
  const auto run = [&](const AttentionOptions& o) {
    return attention(h, h, h, offsets, KeyLayout::contiguous(offsets), o);
  };
  run(good);
  const auto refused = [&](const auto& change) {
    AttentionOptions bad = good;
    change(bad.pair);
    EXPECT_THROW(run(bad), Error);
  };
  refused([](PairTables& p) { p.columns = {}; });
  refused([](PairTables& p) { p.columns = Indices({0, 0, 0}); });        // too short
  refused([](PairTables& p) { p.columns = Indices({0, 0, 0, 2, 1}); });  // no such column
  refused([](PairTables& p) { p.by_query = uniform({2, 4}, 2); });
  refused([](PairTables& p) { p.by_query = uniform({3, 5}, 2); });
  refused([](PairTables& p) { p.by_key = uniform({3, 6}, 2); });      // another width
  refused([](PairTables& p) { p.by_segment = uniform({3, 4}, 2); });  // without segments
  refused([](PairTables& p) { p.positions = Indices({0, 1, 3}); });
}

TEST(Attention, RefusesATermThatIsTooShort) {
  const std::vector<int32_t> offsets = {0, 3};
  const Tensor x = uniform({3, 2}, 1);
  const Heads h{x, 0, 1, 2};
  AttentionOptions options{Mask::full(), {}, uniform({1, 3}, 2), 1, {}};
  EXPECT_THROW(attention(h, h, h, offsets, KeyLayout::contiguous(offsets), options), Error);
  options.term = uniform({1, 5}, 2);
  attention(h, h, h, offsets, KeyLayout::contiguous(offsets), options);
}

// Cross-attention: different numbers of keys and queries, blocks out of order, some rows in no block.
TEST(AttentionGradient, OfKeysInBlocksIsTheDifference) {
  const std::vector<int32_t> offsets = {0, 3, 8};
  KeyLayout keys;
  keys.lengths = {5, 7};
  keys.block_rows = 4;
  keys.block_offsets = {0, 2};
  keys.blocks = {12, 0, 4, 8};  // sequence 0: rows 12..15, 0; sequence 1: rows 4..7, 8..10
  for (const Mask& mask : {Mask::full(), Mask::causal()})
    testing::expect_gradients(
        [&](const Tensors& t) {
          return Tensors{attention({t[0], 0, 4, 3}, {t[1], 0, 2, 3}, {t[2], 0, 2, 5}, offsets, keys,
                                   {mask, {}, {}, 0.5F, {}})};
        },
        {uniform({8, 12}, 1), uniform({16, 6}, 2), uniform({16, 10}, 3)}, attention_check());
}

// All that may be added to scores, a cap, sinks, and what visitors add to scores and probabilities.
TEST(AttentionGradient, OfTheUnfusedOneIsTheDifference) {
  for (Case c : kCases) {
    if (c.rows() > 40) continue;
    SCOPED_TRACE(::testing::Message() << c);
    c.dropout = 0;
    const auto offsets = c.offsets();
    const int64_t reach = *std::max_element(c.lengths.begin(), c.lengths.end()) - 1;
    std::vector<int32_t> columns, segments;
    for (int64_t d = -reach; d <= reach; ++d) columns.push_back(static_cast<int32_t>((d + 3 * reach) % 3));
    for (int64_t r = 0; r < c.rows(); ++r) segments.push_back(static_cast<int32_t>(r / 2 % 2));
    const int64_t first = c.lengths[0], k = c.heads * c.d_qk, v = k + c.kv_heads * c.d_qk;
    Check check = attention_check();
    check.keep_f32 = {1, 2, 3, 4, 5, 6, 7};
    check.coordinates = 30;
    testing::expect_gradients(
        [&](const Tensors& t) {
          AttentionOptions options = c.options();
          options.cap = 1.5F;
          options.sinks = t[1];
          options.term = t[2];
          options.pair = {t[3], t[4], columns, t[5], segments};
          const auto plus = [](const Tensor& x) {
            return [x](int64_t sequence, int64_t head, Tensor& value) {
              if (sequence == 0 && head == 0) value = add(value, x);
            };
          };
          return Tensors{attention_unfused({t[0], 0, c.heads, c.d_qk}, {t[0], k, c.kv_heads, c.d_qk},
                                           {t[0], v, c.kv_heads, c.d_vo}, offsets,
                                           KeyLayout::contiguous(offsets), options,
                                           {.scores = plus(t[6]), .probabilities = plus(t[7])})};
        },
        {uniform({c.rows(), v + c.kv_heads * c.d_vo + 2}, 1), uniform({c.heads}, 2),
         uniform({c.heads, 2 * reach + 1}, 3), uniform({c.rows(), c.heads * 3}, 4),
         uniform({c.rows(), c.heads * 3}, 5), uniform({c.rows(), c.heads * 2}, 6), uniform({first, first}, 7),
         uniform({first, first}, 8)},
        check);
    if (HasFailure()) return;
  }
}

// Grouped heads, keys in blocks out of order, and fewer queries than keys.
TEST(AttentionGradient, OfTheUnfusedOneIsThatOfTheFusedOne) {
  const std::vector<int32_t> offsets = {0, 3, 8};
  KeyLayout keys;
  keys.lengths = {5, 7};
  keys.block_rows = 4;
  keys.block_offsets = {0, 2};
  keys.blocks = {12, 0, 4, 8};
  const Tensors inputs = {uniform({8, 12}, 1), uniform({16, 6}, 2), uniform({16, 10}, 3)};
  for (const Mask& mask : {Mask::full(), Mask::causal()}) {
    const AttentionOptions options{mask, {}, {}, 0.5F, {}};
    const auto gradients = [&](const auto& f) {
      return testing::evaluate(
          [&](const Tensors& t) {
            return Tensors{f(Heads{t[0], 0, 4, 3}, Heads{t[1], 0, 2, 3}, Heads{t[2], 0, 2, 5})};
          },
          inputs, DType::f32, {});
    };
    const auto fused = gradients([&](const Heads& q, const Heads& k, const Heads& v) {
      return attention(q, k, v, offsets, keys, options);
    });
    const auto plain = gradients([&](const Heads& q, const Heads& k, const Heads& v) {
      return attention_unfused(q, k, v, offsets, keys, options);
    });
    for (size_t i = 0; i < inputs.size(); ++i)
      testing::expect_near(fused.gradients[i], plain.gradients[i], 1e-5, "gradient");
  }
}

// A naive implementation of the definition.
TEST(Attention, EqualsTheUnfusedOne) {
  for (Case c : kCases) {
    SCOPED_TRACE(::testing::Message() << c);
    c.dropout = 0;
    const auto offsets = c.offsets();
    const Heads q{uniform({c.rows(), c.heads * c.d_qk}, 1, -3, 3), 0, c.heads, c.d_qk};
    const Heads k{uniform({c.rows(), c.kv_heads * c.d_qk}, 2, -3, 3), 0, c.kv_heads, c.d_qk};
    const Heads v{uniform({c.rows(), c.kv_heads * c.d_vo}, 3), 0, c.kv_heads, c.d_vo};
    const auto keys = KeyLayout::contiguous(offsets);
    AttentionOptions options = c.options();
    options.term = uniform({c.heads, 2 * *std::max_element(c.lengths.begin(), c.lengths.end()) + 1}, 4);
    std::vector<int32_t> columns;
    for (int64_t i = 0; i < options.term.dim(1); ++i) columns.push_back(static_cast<int32_t>(i % 2));
    options.pair.by_key = uniform({c.rows(), c.heads * 2}, 5);
    options.pair.columns = columns;
    const Tensor fused = attention(q, k, v, offsets, keys, options);
    const Tensor plain = attention_unfused(q, k, v, offsets, keys, options);
    // Scores below 9 sqrt(65) = 73, which round to 73 u each; their difference is the relative error of a
    // probability.
    testing::expect_near(testing::floats(fused), testing::floats(plain), 2 * 2 * 73 * testing::kUnit,
                         "output");
  }
}

TEST(Attention, AQueryThatSeesNoKeyGivesZero) {
  const std::vector<int32_t> offsets = {0, 3};
  KeyLayout keys;
  keys.lengths = {0};
  keys.block_offsets = {0};
  const auto e = testing::evaluate(
      [&](const Tensors& t) {
        return Tensors{attention({t[0], 0, 1, 3}, {t[1], 0, 1, 3}, {t[2], 0, 1, 5}, offsets, keys,
                                 {Mask::full(), {}, {}, 1, {}})};
      },
      {uniform({3, 3}, 1), uniform({2, 3}, 2), uniform({2, 5}, 3)}, DType::f32, {});
  for (const float y : e.outputs[0].values<float>()) EXPECT_EQ(y, 0);
  for (const auto& g : e.gradients) EXPECT_EQ(testing::largest_of(g), 0);
}

}  // namespace
}  // namespace qkv::attention_test
