#include "qkv/infer/vote.h"

#include "tests/unit/expect_error.h"

namespace qkv::vote_test {
namespace {

using Answers = std::vector<std::optional<std::string>>;

TEST(Vote, TheAnswerIsTheLastMatchOrItsGroup) {
  const auto answer = [](const char* pattern, std::string_view text) {
    return extract_answer(text::Regex(pattern), text).value_or("none");
  };
  EXPECT_EQ(answer(R"(\d+)", "2 and 3 are 5."), "5");
  EXPECT_EQ(answer(R"(is (\d+))", "it is 41, no, it is 42; 7"), "42");
  EXPECT_EQ(answer(R"(is (\d+)|unknown)", "it is 41, or unknown"), "unknown");  // the group took no part
  EXPECT_EQ(answer(R"((a)(b))", "ab"), "a");
  EXPECT_EQ(answer(R"(^(.*)$)", "one\ntwo"), "two");  // ^ and $ are those of lines
  EXPECT_EQ(answer(R"(is ()x)", "is x"), "");         // an empty answer is one
  EXPECT_EQ(answer(R"(\d+)", "no number"), "none");
  EXPECT_EQ(answer(R"((ü+))", "füür"), "üü");
}

TEST(Vote, CountsTheMostFrequentFirst) {
  const auto votes = count_votes(Answers{"a", "b", std::nullopt, "c", "b", "c", "d"});
  const std::vector<std::pair<std::string, int64_t>> want = {{"b", 2}, {"c", 2}, {"a", 1}, {"d", 1}};
  ASSERT_EQ(votes.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(votes[i].answer, want[i].first);
    EXPECT_EQ(votes[i].count, want[i].second);
  }
  EXPECT_TRUE(count_votes(Answers{std::nullopt}).empty());
}

}  // namespace
}  // namespace qkv::vote_test
