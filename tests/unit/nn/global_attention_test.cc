// Tokens that see all: their own projections, and their selection.
#include <gtest/gtest.h>

#include "qkv/models/transformer.h"
#include "tests/unit/expect_error.h"

namespace qkv::global_attention_test {
namespace {

ModelSpec encoder() {
  ModelSpec s = bert_spec(11, 16, 12, 2, 3);
  s.attention.patterns = {{.window = 3}};
  s.init_std = 0.3F;
  return s;
}

struct Rows {
  std::vector<int32_t> lengths = {5, 16, 1, 9}, ids;
  Rows() {
    for (const int32_t n : lengths)
      for (int32_t i = 0; i < n; ++i) ids.push_back((3 * i + n) % 11);
  }
  Tensor hidden(const Transformer& model, const std::vector<int32_t>& globals = {}) const {
    const NoGrad guard;
    ModelInput input{ids, Layout::of(lengths)};
    if (!globals.empty()) input.globals = globals;
    return model.hidden(input, {});
  }
  std::vector<int32_t> flags(int32_t first) const {
    std::vector<int32_t> out;
    for (const int32_t n : lengths)
      for (int32_t i = 0; i < n; ++i) out.push_back(i < first);
    return out;
  }
};

void expect_same(const Tensor& a, const Tensor& b, float within) {
  ASSERT_EQ(a.shape(), b.shape());
  for (int64_t i = 0; i < a.count(); ++i) ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i], within) << i;
}

// Flags for the first tokens equal the pattern's "global 2" bit for bit.
TEST(GlobalAttention, FlagsSayWhatThePatternSays) {
  const Rows rows;
  ModelSpec s = encoder(), said = s;
  said.attention.patterns = {{.window = 3, .global = 2}};
  Transformer flagged(s), first(said);
  flagged.parameters().draw(3, DType::f32);
  first.parameters().draw(3, DType::f32);
  expect_same(rows.hidden(flagged, rows.flags(2)), rows.hidden(first), 0);
}

// Flags replace those of the pattern.
TEST(GlobalAttention, FlagsReplaceThePatterns) {
  const Rows rows;
  for (const bool apart : {false, true}) {
    ModelSpec s = encoder(), said = s;
    said.attention.patterns = {{.window = 3, .global = 2}};
    s.attention.global_projections = said.attention.global_projections = apart;
    Transformer flagged(s), both(said);
    flagged.parameters().draw(3, DType::f32);
    both.parameters().draw(3, DType::f32);
    std::vector<int32_t> third = rows.flags(0);
    third[2] = third[7] = 1;  // no flags in the last sequences
    expect_same(rows.hidden(both, third), rows.hidden(flagged, third), 0);
  }
  ModelSpec only = encoder();
  only.attention.patterns = {{.global = 1}};
  Transformer model(only);
  model.parameters().draw(3, DType::f32);
  testing::expect_error([&] { rows.hidden(model, rows.flags(1)); }, {"pattern that has others"});
}

// Separate projections with equal weights change nothing.
TEST(GlobalAttention, EqualProjectionsAreNone) {
  const Rows rows;
  ModelSpec s = encoder();
  s.attention.patterns = {{.window = 3, .global = 2}};
  ModelSpec apart = s;
  apart.attention.global_projections = true;
  Transformer one(s), two(apart);
  one.parameters().draw(3, DType::f32);
  two.parameters().draw(3, DType::f32);
  const int64_t d = s.width;
  for (int64_t l = 0; l < s.layers; ++l)
    for (const std::string kind : {".weight", ".bias"}) {
      const std::string at = fmt::format("encoder.block.{}.attention.", l);
      const Tensor qkv = two.parameters().find(at + "qkv" + kind)->value;
      const auto put = [&](const std::string& of, int64_t begin, int64_t end) {
        Parameter& p = *two.parameters().find(at + "global." + of + kind);
        const int64_t row = p.value.count() / p.value.dim(0);
        std::copy(qkv.data<float>() + begin * row, qkv.data<float>() + end * row,
                  p.value.mutable_data<float>());
      };
      put("q", 0, d);
      put("kv", d, 3 * d);
    }
  expect_same(rows.hidden(two), rows.hidden(one), 2e-5F);
  // With other weights they do.
  two.parameters().find("encoder.block.0.attention.global.kv.weight")->value.mutable_data<float>()[7] += 1;
  const Tensor a = rows.hidden(two), b = rows.hidden(one);
  EXPECT_GT(std::abs(a.data<float>()[0] - b.data<float>()[0]), 1e-4);
}

// A global token anywhere: all see it, and it sees all.
TEST(GlobalAttention, OneTokenInTheMiddle) {
  ModelSpec s = encoder();
  s.layers = 1;
  Transformer model(s);
  model.parameters().draw(3, DType::f32);
  Rows rows;
  rows.lengths = {13};
  rows.ids.assign(13, 4);
  std::vector<int32_t> flags(13, 0);
  flags[6] = 1;
  const auto seen_by = [&](int64_t query) {
    std::string seen;
    const Tensor before = rows.hidden(model, flags);
    for (size_t k = 0; k < 13; ++k) {
      rows.ids[k] = 7;
      const Tensor after = rows.hidden(model, flags);
      seen += std::equal(before.data<float>() + query * 12, before.data<float>() + query * 12 + 12,
                         after.data<float>() + query * 12)
                  ? '.'
                  : '#';
      rows.ids[k] = 4;
    }
    return seen;
  };
  EXPECT_EQ(seen_by(0), "###...#......");
  EXPECT_EQ(seen_by(6), "#############");
  EXPECT_EQ(seen_by(10), "......#.#####");
}

TEST(GlobalAttention, RefusesWhatDoesNotFit) {
  ModelSpec s = encoder();
  s.attention.global_projections = true;
  s.positions = Positions::rotary;
  s.attention.rotary.width = 4;
  testing::expect_error([&] { check_spec(s); }, {"global_projections", "rotary"});
  s = encoder();
  s.attention.patterns = {};
  s.attention.global_projections = true;
  testing::expect_error([&] { check_spec(s); }, {"global_projections", "no patterns"});
  s = gpt2_spec(11, 16, 12, 2, 3);
  s.attention.patterns = {{.window = 3}};
  s.attention.global_projections = true;
  testing::expect_error([&] { check_spec(s); }, {"global_projections", "encoder"});
  Transformer model(encoder());
  model.parameters().draw(3, DType::f32);
  testing::expect_error([&] { Rows().hidden(model, {1, 0}); }, {"flags"});
}

}  // namespace
}  // namespace qkv::global_attention_test
