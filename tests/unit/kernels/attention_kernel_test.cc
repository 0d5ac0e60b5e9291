// Attention, forward and backward: the plain loops against f64, the SIMD kernels against the plain loops.
#include <fmt/format.h>

#include "qkv/models/spec.h"
#include "tests/unit/kernels/attention_testing.h"

namespace qkv::attention_kernel_test {
namespace {

const std::vector<int64_t> kLengths = {1, 2, 5, 63, 64, 65, 130};

// Windows within a tile of keys, and over several.
const Mask kMasks[] = {Mask::causal(), Mask::full(), Mask::sliding(3), Mask::sliding(66)};

const Pattern kPatterns[] = {
    {.window = 5, .dilation = 3},
    {.window = 20, .stride = 33, .global = 2},
    {.block = 16, .neighbours = 1, .summary = 2},
    {.block = 64, .neighbours = 1, .ends = true, .random = 2},
    {.block = 8, .ends = true, .random = 1, .beyond = 64},
};

std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> cases;
  // Patterns, within and over several tiles; of a decoder also where only the last are queries.
  for (const Pattern& pattern : kPatterns)
    for (const bool causal : {false, true})
      for (const int64_t kv_heads : {4, 2})
        cases.push_back(
            {.name = "pattern",
             .heads = 4,
             .kv_heads = kv_heads,
             .d_qk = 16,
             .d_vo = 24,
             .queries = causal ? std::vector<int64_t>{1, 70, 3, 300} : std::vector<int64_t>{1, 70, 64, 300},
             .keys = causal ? std::vector<int64_t>{130, 70, 200, 310} : std::vector<int64_t>{1, 70, 64, 300},
             .mask = (causal ? Mask::causal() : Mask::full()).with(pattern),
             .p = kv_heads == 2 ? 0.2f : 0});
  // A token's own key where it sees no other.
  for (Mask mask : {Mask::causal(), Mask::full(), Mask::causal().with({.block = 16}), Mask::sliding(1),
                    Mask::full().with({.window = 20, .stride = 33, .global = 2})}) {
    mask.own_last = true;
    const bool causal = mask.is_causal();
    cases.push_back(
        {.name = "own key last",
         .heads = 2,
         .kv_heads = 2,
         .d_qk = 16,
         .d_vo = 24,
         .queries = causal ? std::vector<int64_t>{1, 70, 3, 1} : std::vector<int64_t>{1, 70, 64, 2},
         .keys = causal ? std::vector<int64_t>{1, 70, 200, 130} : std::vector<int64_t>{1, 70, 64, 2},
         .mask = mask,
         .p = causal ? 0 : 0.2F});
  }
  for (const int64_t kv_heads : {2, 1})
    cases.push_back(
        {.name = "pattern that counts a block often",
         .heads = 2,
         .kv_heads = kv_heads,
         .d_qk = 32,
         .d_vo = 8,
         .queries = {1, 70, 63, 300},
         .keys = {1, 70, 63, 300},
         .mask = Mask::full().with({.block = 4, .neighbours = 1, .ends = true, .first_block = 3})});
  struct Width {
    int64_t qk, vo;
  };
  // Heads and groups, in widths below, at and between vector lengths.
  for (const auto& [heads, kv_heads] :
       {std::pair<int64_t, int64_t>{1, 1}, {2, 1}, {2, 2}, {6, 1}, {6, 2}, {6, 3}})
    for (const Width w : {Width{3, 5}, {8, 24}})
      for (const Mask& mask : kMasks)
        cases.push_back({.name = "heads",
                         .heads = heads,
                         .kv_heads = kv_heads,
                         .d_qk = w.qk,
                         .d_vo = w.vo,
                         .queries = kLengths,
                         .keys = kLengths,
                         .mask = mask});
  cases.push_back({.name = "d 64",
                   .heads = 2,
                   .kv_heads = 2,
                   .d_qk = 64,
                   .d_vo = 64,
                   .queries = kLengths,
                   .keys = kLengths});
  // Several tiles of lanes beside each other, of keys behind each other, and the tasks' border.
  for (const float p : {0.0f, 0.3f})
    for (const Mask& mask : kMasks)
      cases.push_back({.name = "long",
                       .heads = 3,
                       .kv_heads = 1,
                       .d_qk = 32,
                       .d_vo = 40,
                       .queries = {200, 33},
                       .keys = {200, 300},
                       .mask = mask,
                       .p = p});
  cases.push_back({.name = "576/512",
                   .heads = 2,
                   .kv_heads = 1,
                   .d_qk = 576,
                   .d_vo = 512,
                   .queries = {3, 1},
                   .keys = {70, 66}});
  // An order of its own:
  for (const Width w : {Width{3, 5}, {32, 64}})
    for (const float p : {0.0f, 0.3f})
      cases.push_back({.name = "ranked",
                       .heads = 4,
                       .kv_heads = 2,
                       .d_qk = w.qk,
                       .d_vo = w.vo,
                       .queries = {200, 1, 17, 64},
                       .keys = {200, 1, 17, 64},
                       .p = p,
                       .term = w.qk == 32,
                       .ranked = true});
  cases.push_back({.name = "one by one", .d_qk = 1, .d_vo = 1, .queries = {1, 3}, .keys = {1, 3}});
  // Cached decoding: one query (the path with vectors along the head), a few, many; some without queries.
  for (const auto& [heads, kv_heads] : {std::pair<int64_t, int64_t>{1, 1}, {2, 1}, {6, 3}, {6, 1}})
    for (const float p : {0.0f, 0.3f})
      cases.push_back({.name = "cached",
                       .heads = heads,
                       .kv_heads = kv_heads,
                       .d_qk = 20,
                       .d_vo = 12,
                       .queries = {1, 1, 1, 2, 5, 70, 0, 1},
                       .keys = {1, 64, 129, 66, 70, 200, 9, 65},
                       .p = p});
  // Cross-attention: more keys than queries and fewer.
  for (const float p : {0.0f, 0.3f})
    cases.push_back({.name = "cross",
                     .heads = 2,
                     .kv_heads = 2,
                     .d_qk = 8,
                     .d_vo = 24,
                     .queries = {5, 65, 1, 130, 64},
                     .keys = {65, 5, 130, 1, 64},
                     .mask = Mask::full(),
                     .p = p});
  // Queries before the first key see nothing.
  cases.push_back({.name = "causal, more queries than keys",
                   .heads = 2,
                   .kv_heads = 1,
                   .d_qk = 8,
                   .d_vo = 24,
                   .queries = {5, 130, 70},
                   .keys = {3, 64, 1}});
  for (const Mask& mask : kMasks)
    cases.push_back({.name = "no keys",
                     .heads = 2,
                     .kv_heads = 2,
                     .d_qk = 8,
                     .d_vo = 8,
                     .queries = {3, 4, 1, 70},
                     .keys = {0, 4, 0, 0},
                     .mask = mask});
  cases.push_back({.name = "no sequences"});
  // Layouts.
  for (const Mask& mask : kMasks)
    cases.push_back({.name = "packed",
                     .heads = 6,
                     .kv_heads = 2,
                     .d_qk = 8,
                     .d_vo = 24,
                     .queries = kLengths,
                     .keys = kLengths,
                     .mask = mask,
                     .p = 0.2f,
                     .packed = true});
  for (const int64_t block_rows : {1, 3, 16, 64})
    cases.push_back({.name = "blocks",
                     .heads = 2,
                     .kv_heads = 1,
                     .d_qk = 8,
                     .d_vo = 24,
                     .queries = {1, 2, 65, 0, 7},
                     .keys = {5, 130, 70, 0, 64},
                     .p = block_rows == 3 ? 0.2f : 0,
                     .block_rows = block_rows,
                     .packed = block_rows == 16});
  for (const Mask& mask : kMasks)
    cases.push_back({.name = "dropout",
                     .heads = 6,
                     .kv_heads = 3,
                     .d_qk = 8,
                     .d_vo = 24,
                     .queries = kLengths,
                     .keys = kLengths,
                     .mask = mask,
                     .p = 0.5f});
  // One head a group has its own path; several share lanes; single queries another.
  for (const Mask& mask : kMasks)
    for (const int64_t kv_heads : {4, 2})
      cases.push_back({.name = "term",
                       .heads = 4,
                       .kv_heads = kv_heads,
                       .d_qk = 16,
                       .d_vo = 24,
                       .queries = {1, 5, 65, 130, 1},
                       .keys = {70, 5, 65, 150, 1},
                       .mask = mask,
                       .p = 0.2f,
                       .term = true});
  // With keys of other rows than the queries', and with the same.
  for (const Mask& mask : kMasks)
    for (const int64_t kv_heads : {4, 2})
      for (const bool same : {false, true})
        cases.push_back(
            {.name = "pair term",
             .heads = 4,
             .kv_heads = kv_heads,
             .d_qk = 16,
             .d_vo = 24,
             .queries = {1, 5, 65, 130, 1},
             .keys = same ? std::vector<int64_t>{1, 5, 65, 130, 1} : std::vector<int64_t>{70, 5, 65, 150, 1},
             .mask = mask,
             .p = 0.2f,
             .block_rows = same ? 0 : 16,
             .pair = true});
  // Capped scores, and sinks; queries that see sinks alone.
  for (const Mask& mask : kMasks)
    for (const int64_t kv_heads : {4, 2})
      for (const bool term : {false, true})
        cases.push_back({.name = "cap and sinks",
                         .heads = 4,
                         .kv_heads = kv_heads,
                         .d_qk = 16,
                         .d_vo = 24,
                         .queries = {1, 5, 65, 130, 1, 70},
                         .keys = {70, 5, 65, 150, 1, 3},
                         .mask = mask,
                         .p = term ? 0.2f : 0,
                         .amplitude = 3,
                         .term = term,
                         .cap = term ? 0.0 : 2.5,
                         .sinks = true});
  cases.push_back({.name = "cap and term",
                   .heads = 3,
                   .kv_heads = 1,
                   .d_qk = 32,
                   .d_vo = 40,
                   .queries = {200, 33},
                   .keys = {200, 300},
                   .p = 0.3f,
                   .amplitude = 2,
                   .term = true,
                   .cap = 30});
  // Scores up to about 1e4, both signs.
  for (const Mask& mask : kMasks)
    cases.push_back({.name = "extreme",
                     .heads = 2,
                     .kv_heads = 1,
                     .d_qk = 8,
                     .d_vo = 24,
                     .queries = {1, 5, 65, 130},
                     .keys = {70, 5, 65, 130},
                     .mask = mask,
                     .p = 0.2f,
                     .amplitude = 60});
  return cases;
}

std::string text(const AttentionCase& c) {
  std::string s = fmt::format("{}: heads {}/{}, d {}/{}, {}, p {}, block rows {}, lengths", c.name, c.heads,
                              c.kv_heads, c.d_qk, c.d_vo,
                              c.ranked                          ? "ranked"
                              : c.mask.kind == Mask::Kind::full ? "full " + text_of(c.mask.pattern)
                              : c.mask.pattern.any()            ? text_of(c.mask.pattern)
                                                                : "causal",
                              c.p, c.block_rows);
  for (size_t i = 0; i < c.queries.size(); ++i) s += fmt::format(" {}x{}", c.queries[i], c.keys[i]);
  return s;
}

// f(table, whether its attention in bf16 runs on tiles) for each but the plain loops.
template <typename F>
void for_attention_tables(const F& f) {
  const KernelTable *amx = tile_kernels(TileUnit::amx), *emulated = tile_kernels(TileUnit::emulated);
  for_simd_tables([&](const KernelTable& table) { f(table, amx && table.name == amx->name); });
  if (!emulated) return;
  SCOPED_TRACE(emulated->name);
  f(*emulated, true);
}

template <typename T>
class AttentionKernel : public ::testing::Test {};
using Types = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(AttentionKernel, Types);

TYPED_TEST(AttentionKernel, AgreesWithF64AndThePlainLoops) {
  using T = TypeParam;
  for (const AttentionCase& c : attention_cases()) {
    SCOPED_TRACE(text(c));
    const AttentionProblem<T> problem(c);
    const AttentionOracle exact = attention_oracle(problem, true);
    const auto plain = problem.forward(generic_kernels());
    expect_bounded(plain.out, exact.out, "plain out");
    expect_bounded(plain.lse, exact.lse, "plain lse");
    const auto plain_grad = problem.backward(generic_kernels(), plain);
    expect_bounded(plain_grad.dq, exact.dq, "plain dq");
    expect_bounded(plain_grad.dk, exact.dk, "plain dk");
    expect_bounded(plain_grad.dv, exact.dv, "plain dv");
    const AttentionOracle rounded = attention_oracle(problem, true, std::is_same_v<T, float> ? 0 : 0x1p-8);
    for_attention_tables([&](const KernelTable& table, bool tiles) {
      const AttentionOracle& oracle = tiles ? rounded : exact;
      // Either may be off by the bound.
      const auto twice = [](const Bounded& b) { return [&b](int64_t i) { return 2 * b.bound[i]; }; };
      const auto fast = problem.forward(table);
      expect_close(fast.out, plain.out, twice(oracle.out), "out");
      expect_close(fast.lse, plain.lse, twice(oracle.lse), "lse");
      // From the same forward pass, so that the difference is this kernel's alone.
      const auto fast_grad = problem.backward(table, plain);
      expect_close(fast_grad.dq, plain_grad.dq, twice(oracle.dq), "dq");
      expect_close(fast_grad.dk, plain_grad.dk, twice(oracle.dk), "dk");
      expect_close(fast_grad.dv, plain_grad.dv, twice(oracle.dv), "dv");
    });
    if (::testing::Test::HasFailure()) return;  // one case says enough
  }
}

TYPED_TEST(AttentionKernel, WithoutKeysIsZeroWithLogOfZero) {
  using T = TypeParam;
  for (int i = 0; i < kernel_table_count(); ++i)
    for (const int64_t queries : {1, 3, 70})
      for (const Mask& mask : kMasks) {
        SCOPED_TRACE(kernel_table(i).name);
        const AttentionProblem<T> problem(
            {.heads = 2, .kv_heads = 2, .queries = {queries}, .keys = {0}, .mask = mask});
        const auto f = problem.forward(kernel_table(i));
        for (int64_t j = 0; j < f.out.size(); ++j) ASSERT_EQ(f.out.at(j), 0);
        for (int64_t j = 0; j < f.lse.size(); ++j) ASSERT_EQ(f.lse.at(j), -HUGE_VAL);
        const auto b = problem.backward(kernel_table(i), f);
        for (int64_t j = 0; j < b.dq.size(); ++j) ASSERT_EQ(b.dq.at(j), 0);
      }
}

// Scores of exactly +-1e4: all mass on the +1e4 keys, equally; nothing overflows.
TYPED_TEST(AttentionKernel, ExtremeScoresStayFinite) {
  using T = TypeParam;
  for (int table = 0; table < kernel_table_count(); ++table)
    for (const int64_t queries : {1, 70}) {
      SCOPED_TRACE(kernel_table(table).name);
      AttentionProblem<T> problem(
          {.d_qk = 1, .d_vo = 2, .queries = {queries}, .keys = {70}, .mask = Mask::full()});
      for (int64_t i = 0; i < queries; ++i) problem.q[i] = T(i % 2 ? -100.0f : 100.0f);
      for (int64_t j = 0; j < 70; ++j) problem.k[j] = T(j % 7 ? -100.0f : 100.0f);
      const auto f = problem.forward(kernel_table(table));
      const auto b = problem.backward(kernel_table(table), f);
      for (int64_t i = 0; i < queries; ++i) {
        const double top = 100.0 * static_cast<float>(problem.q[0]);
        EXPECT_NEAR(f.lse.at(i), top + std::log(i % 2 ? 60 : 10), 4 * kEps * top);
        double want = 0;
        for (int64_t j = 0; j < 70; ++j)
          if ((j % 7 == 0) == (i % 2 == 0)) want += problem.v.at(2 * j) / (i % 2 ? 60 : 10);
        EXPECT_NEAR(f.out.at(2 * i), want, 1e4 * 4 * kEps + kStoreEps<T> * std::max(1.0, std::abs(want)));
      }
      for (const Buffer<T>* x : {&b.dq, &b.dk, &b.dv})
        for (int64_t j = 0; j < x->size(); ++j) ASSERT_TRUE(std::isfinite(x->at(j)));
    }
}

// A query's result must not depend on which others share its tile: decoding one by one gives what the whole
// sequence gave, to rounding.
TYPED_TEST(AttentionKernel, DecodingContinuesTheSequence) {
  using T = TypeParam;
  for (int table = 0; table < kernel_table_count(); ++table) {
    SCOPED_TRACE(kernel_table(table).name);
    const AttentionCase whole{
        .heads = 2, .kv_heads = 1, .d_qk = 16, .d_vo = 8, .queries = {100}, .keys = {100}};
    const AttentionProblem<T> all(whole);
    const auto want = all.forward(kernel_table(table));
    const AttentionOracle oracle = attention_oracle(all, false, std::is_same_v<T, float> ? 0 : 0x1p-8);
    for (const int64_t length : {1, 2, 63, 64, 65, 100}) {
      AttentionCase last = whole;
      last.queries = {1}, last.keys = {length};
      AttentionProblem<T> one(last);  // the same keys: buffers start with the same numbers
      for (int64_t i = 0; i < one.q.size(); ++i) one.q[i] = all.q[(length - 1) * all.q_width() + i];
      const auto got = one.forward(kernel_table(table));
      for (int64_t i = 0; i < got.out.size(); ++i) {
        const int64_t at = (length - 1) * all.out_width() + i;
        EXPECT_NEAR(got.out.at(i), want.out.at(at), 2 * oracle.out.bound[at]);
      }
    }
  }
}

}  // namespace
}  // namespace qkv::attention_kernel_test
