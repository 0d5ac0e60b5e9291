#include "qkv/trace/roles.h"

#include "qkv/trace/trace.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/trace/trace_testing.h"

namespace qkv::roles_test {
namespace {

using testing::random_model;

ModelInput two_sequences() {
  ModelInput input;
  input.ids = std::vector<int32_t>{3, 1, 3, 1, 5, 7, 7, 2};
  input.layout = Layout::of({5, 3});
  return input;
}

std::vector<ModelSpec> specs() {
  return {gpt2_spec(11, 8, 12, 2, 3), bert_spec(11, 8, 12, 2, 3)};
}

// Against the definitions, pair by pair, from the traced probabilities.
TEST(Roles, AreSharesOfTheTracedAttention) {
  const ModelInput input = two_sequences();
  const auto ids = input.ids.values();
  for (const ModelSpec& spec : specs()) {
    const auto model = random_model(spec, 1);
    const std::string stack = spec.architecture == Architecture::encoder ? "encoder" : "decoder";
    RoleMeter meter(*model);
    meter.add(input);
    meter.add(input);  // means stay
    const std::vector<HeadRole> roles = meter.roles();
    ASSERT_EQ(roles.size(), 6U);
    Trace trace({"*.attention.probabilities"});
    run_traced(*model, input, trace);
    for (const HeadRole& role : roles) {
      const TracedValue& value =
          trace.at(fmt::format("{}.block.{}.attention.probabilities", stack, role.layer));
      const auto mean = [&](const auto& wanted) {  // mean share of the wanted keys j of queries i
        double sum = 0;
        int64_t queries = 0;
        for (const HeadValue& head : value.heads) {
          if (head.head != role.head) continue;
          const int64_t begin = input.layout.offsets[head.sequence], n = head.value.rows();
          for (int64_t i = 0; i < n; ++i) {
            double share = 0;
            bool any = false;
            for (int64_t j = 0; j < n; ++j)
              if (wanted(begin, i, j)) {
                share += head.value.row<float>(i)[j];
                any = true;
              }
            sum += share;
            queries += any;
          }
        }
        return queries > 0 ? sum / static_cast<double>(queries) : 0;
      };
      EXPECT_NEAR(role.previous, mean([](int64_t, int64_t i, int64_t j) { return j == i - 1; }), 1e-6);
      EXPECT_NEAR(role.next, mean([](int64_t, int64_t i, int64_t j) { return j == i + 1; }), 1e-6);
      EXPECT_NEAR(role.first, mean([](int64_t, int64_t i, int64_t j) { return i > 1 && j == 0; }), 1e-6);
      EXPECT_NEAR(role.same, mean([](int64_t, int64_t i, int64_t j) { return i > 0 && j == i; }), 1e-6);
      EXPECT_NEAR(role.duplicate,
                  mean([&](int64_t b, int64_t i, int64_t j) { return j < i && ids[b + j] == ids[b + i]; }),
                  1e-6);
      EXPECT_NEAR(role.induction, mean([&](int64_t b, int64_t i, int64_t j) {
                    return j > 0 && j < i && ids[b + j - 1] == ids[b + i];
                  }),
                  1e-6);
      std::map<int64_t, int64_t> nearest;
      for (const HeadValue& head : value.heads)
        for (int64_t i = 1; head.head == role.head && i < head.value.rows(); ++i) {
          const auto row = head.value.row<float>(i);
          ++nearest[std::max_element(row.begin(), row.end()) - row.begin() - i];
        }
      int64_t most = 0;
      for (const auto& [distance, count] : nearest) most = std::max(most, count);
      EXPECT_EQ(nearest[role.distance], most);
      EXPECT_NEAR(role.positional, static_cast<double>(most) / 6, 1e-9);
    }
  }
}

TEST(Roles, HaveNames) {
  HeadRole role;
  EXPECT_EQ(role.name(), "");
  role.previous = 0.7;
  role.first = 0.5;
  EXPECT_EQ(role.name(), "previous token");
  role.induction = 0.8;
  EXPECT_EQ(role.name(), "induction");
}

TEST(Roles, RepeatedTokensComeTwice) {
  const std::vector<int32_t> ids = repeated_tokens({5}, 2, 9, 12, 1);
  ASSERT_EQ(ids.size(), 11U);
  EXPECT_EQ(ids[0], 5);
  for (size_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(ids[i], ids[i + 5]);
    EXPECT_GE(ids[i], 2);
    EXPECT_LT(ids[i], 9);
  }
  EXPECT_NE(ids, repeated_tokens({5}, 2, 9, 12, 2));
  testing::expect_error([] { repeated_tokens({5}, 2, 9, 2, 1); }, {"repeated tokens"});
}

// Words of several tokens, with a token of no word before them and one behind.
TEST(Roles, RelationsAreTheMostAttendedWords) {
  const auto model = random_model(bert_spec(11, 8, 12, 2, 3), 4);
  RelatedWords text;
  text.input = testing::sequence({3, 1, 4, 1, 5, 9, 2});
  text.words = {{1, 3}, {3, 4}, {4, 6}};
  text.pairs = {{0, 1}, {0, 2}, {1, 2}, {2, 0}};
  RelationMeter meter(*model);
  meter.add(text);
  EXPECT_EQ(meter.pairs(), 4);
  Trace trace({"*.attention.probabilities"});
  run_traced(*model, text.input, trace);
  int64_t found = 0;
  for (const RelationScore& score : meter.scores()) {
    const Tensor& p = trace.at(fmt::format("encoder.block.{}.attention.probabilities", score.layer))
                          .heads[score.head]
                          .value;
    int64_t expected = 0;
    for (const auto& [from, to] : text.pairs) {
      std::vector<double> of_word(3, 0);
      for (int32_t w = 0; w < 3; ++w)
        for (int32_t i = text.words[from].first; i < text.words[from].second; ++i)
          for (int32_t j = text.words[w].first; j < text.words[w].second; ++j)
            of_word[w] += w == from ? -1 : p.row<float>(i)[j];
      expected += std::max_element(of_word.begin(), of_word.end()) - of_word.begin() == to;
    }
    EXPECT_EQ(score.found, expected);
    found += expected;
  }
  EXPECT_GT(found, 0);
  EXPECT_EQ(meter.best_distance(), std::pair(int64_t{1}, int64_t{2}));
  text.pairs = {{0, 3}};
  testing::expect_error([&] { meter.add(text); }, {"relations", "3 of 3"});
}

}  // namespace
}  // namespace qkv::roles_test
