#include "qkv/text/stop_strings.h"

#include <random>

#include "tests/unit/expect_error.h"

namespace qkv::text::stop_strings_test {
namespace {

using qkv::testing::expect_error;
using Strings = std::vector<std::string>;

// The text that comes through when it arrives in these pieces, "|" where it stopped.
std::string through(const Strings& stops, const Strings& pieces) {
  StopStrings filter(stops);
  std::string text;
  for (const std::string& piece : pieces) text += filter.add(piece);
  const bool stopped = filter.stopped();
  return text + filter.finish() + (stopped ? "|" : "");
}

TEST(StopStrings, EndTheText) {
  EXPECT_EQ(through({"END"}, {"one END two"}), "one |");
  EXPECT_EQ(through({"END"}, {"one E", "N", "D two"}), "one |");
  EXPECT_EQ(through({"END"}, {"one E", "N", "E two", " EN"}), "one ENE two EN");
  EXPECT_EQ(through({"b", "a"}, {"xxab"}), "xx|");
  EXPECT_EQ(through({}, {"any", "thing"}), "anything");
  EXPECT_EQ(through({"aab"}, {"aaaab"}), "aa|");  // a match that begins inside a failed one
  EXPECT_EQ(through({"\n\n"}, {"a\n", "b\n", "\nc"}), "a\nb|");
  EXPECT_EQ(through({"é!"}, {"caf", "é", "è", "é", "!"}), "caféè|");
  EXPECT_EQ(through({"bc", "abcd"}, {"xabcd"}), "xa|");  // complete first
  EXPECT_EQ(through({"bc", "abc"}, {"xabc"}), "x|");     // together: the longest
}

TEST(StopStrings, OnlyWhatMayBecomeOneWaits) {
  StopStrings filter({"\nUser:", "END"});
  EXPECT_EQ(filter.add("Hello"), "Hello");
  EXPECT_EQ(filter.add(" E"), " ");
  EXPECT_EQ(filter.add("nd"), "End");
  EXPECT_EQ(filter.add("\nUs"), "");
  EXPECT_EQ(filter.add("ed E"), "\nUsed ");
  EXPECT_EQ(filter.finish(), "E");
  EXPECT_EQ(filter.add("EN"), "");
  EXPECT_EQ(filter.add("D"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.add("more"), "");
  EXPECT_EQ(filter.finish(), "");
  EXPECT_FALSE(filter.stopped());  // ready for another text
  EXPECT_EQ(filter.add("more"), "more");
}

// Against the definition: the first place where a stop string ends; and never text of a stop string too
// early.
TEST(StopStrings, PiecesChangeNothing) {
  std::mt19937 rng(3);
  const auto random_text = [&](size_t length) {
    std::string s;
    for (; length > 0; --length) s += static_cast<char>('a' + rng() % 2);
    return s;
  };
  for (int n = 0; n < 5000; ++n) {
    Strings stops, pieces;
    for (size_t i = rng() % 3; i > 0; --i) stops.push_back(random_text(2 + rng() % 5));
    for (size_t i = rng() % 8; i > 0; --i) pieces.push_back(random_text(rng() % 4));
    std::string text, want;
    for (const std::string& p : pieces) text += p;
    want = text;
    for (size_t end = 1; end <= text.size() && want == text; ++end)
      for (const std::string& stop : stops)
        if (text.substr(0, end).ends_with(stop)) {
          const std::string before = text.substr(0, end - stop.size());
          if (!want.ends_with('|') || before.size() + 1 < want.size()) want = before + "|";
        }
    EXPECT_EQ(through(stops, pieces), want) << n;
  }
}

TEST(StopStrings, RefusesWhatCannotOccur) {
  expect_error([] { StopStrings({"a", ""}); }, {"stop string", "empty"});
  expect_error([] { StopStrings({"caf\xe9"}); }, {"stop string", "UTF-8"});
}

}  // namespace
}  // namespace qkv::text::stop_strings_test
