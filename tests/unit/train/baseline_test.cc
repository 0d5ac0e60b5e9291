// Simple methods on examples small enough to be counted by hand.
// Covers: qkv/metrics/baseline_names.cc
#include "qkv/train/tasks/baseline.h"

#include <gtest/gtest.h>

namespace qkv::baseline_test {
namespace {

Example text(const std::string& first, const std::string& label, const std::string& second = "") {
  Example e;
  e.text = {first, second};
  e.label = label;
  return e;
}
Example sentence(const std::vector<std::string>& words, const std::vector<std::string>& tags) {
  Example e;
  e.words = words;
  e.tags = tags;
  return e;
}

using Scores = std::vector<std::pair<std::string, double>>;

TEST(Baseline, NaiveBayes) {
  // V = {a, b}; for x P(a) = 3/5, P(b) = 2/5; for y P(a) = 1/3, P(b) = 2/3; both classes 1/2.
  const std::vector<Example> train = {text("a A b", "x"), text("B", "y")};
  const auto right = [&](const std::string& words, const std::string& label, const std::string& second = "") {
    return baselines(train, {text(words, label, second)}, Output::sequence_classes)[1].second == 1;
  };
  EXPECT_TRUE(right("a", "x"));
  EXPECT_TRUE(right("b", "y"));
  EXPECT_TRUE(right("a b", "x"));       // 0.24 against 0.2222
  EXPECT_TRUE(right("a b b", "y"));     // 0.096 against 0.148
  EXPECT_TRUE(right("b", "x", "a a"));  // the second text counts: 0.144 against 0.074
  EXPECT_TRUE(right("b unknown words", "y"));
  // A class twice as frequent: 2/3 * P against 1/3 * P.
  const std::vector<Example> more = {text("a", "x"), text("b", "x"), text("b", "y")};
  EXPECT_EQ(baselines(more, {text("b", "x")}, Output::sequence_classes)[1].second, 1);      // 1/3 against 2/9
  EXPECT_EQ(baselines(more, {text("b b b", "y")}, Output::sequence_classes)[1].second, 1);  // 1/12, 8/81
}

TEST(Baseline, MostFrequentClass) {
  const std::vector<Example> train = {text("a", "x"), text("a", "y"), text("a", "y")};
  const std::vector<Example> test = {text("a", "y"), text("b", "x"), text("c", "y"), text("d", "z")};
  const Scores s = baselines(train, test, Output::sequence_classes);
  EXPECT_EQ(s[0], (std::pair<std::string, double>{"most frequent class", 0.5}));
  EXPECT_EQ(s[1].first, "naive Bayes");
}

// A class whose examples have no words has no counts.
TEST(Baseline, AClassWithoutWords) {
  const std::vector<Example> train = {text("a", "x"), text(" ", "y")};
  EXPECT_EQ(baselines(train, {text("a", "x"), text("a", "y")}, Output::sequence_classes)[1].second, 0.5);
}

TEST(Baseline, WordsAndSuffixes) {
  const std::vector<Example> train = {
      sentence({"run", "run", "run", "running", "the", "evening"}, {"V", "N", "V", "V", "D", "N"}),
      sentence({"spring", "ring", "king"}, {"N", "N", "N"})};
  const auto tag_is = [&](const std::string& word, const std::string& tag) {
    return baselines(train, {sentence({word}, {tag})}, Output::token_classes)[1].second == 1;
  };
  EXPECT_TRUE(tag_is("run", "V"));  // twice against once
  EXPECT_TRUE(tag_is("ring", "N"));
  EXPECT_TRUE(tag_is("gunning", "N"));  // -ning: V and N once each, the first among equals
  EXPECT_TRUE(tag_is("xrun", "V"));     // -run
  EXPECT_TRUE(tag_is("jumping", "N"));  // -ing
  EXPECT_TRUE(tag_is("he", "D"));       // -he
  EXPECT_TRUE(tag_is("xyz", "N"));      // nothing known: all tags
  const Scores s =
      baselines(train, {sentence({"run", "the", "qqq"}, {"N", "D", "D"})}, Output::token_classes);
  EXPECT_EQ(s[0], (std::pair<std::string, double>{"most frequent tag", 1.0 / 3}));
  EXPECT_EQ(s[1], (std::pair<std::string, double>{"words and suffixes", 1.0 / 3}));
}

TEST(Baseline, NothingToCompare) {
  EXPECT_TRUE(baselines({}, {text("a", "x")}, Output::sequence_classes).empty());
  EXPECT_TRUE(baselines({text("a", "x")}, {}, Output::sequence_classes).empty());
  EXPECT_TRUE(baselines({text("a", "x")}, {text("a", "x")}, Output::span).empty());
}

TEST(Baseline, HasAKeyAndAName) {
  EXPECT_EQ(baseline_key("naive Bayes"), "baseline_naive_bayes");
  for (const char* name :
       {"most frequent class", "naive Bayes", "most frequent tag", "words and suffixes", "shared words"})
    EXPECT_EQ(baseline_name(baseline_key(name)), name);
  EXPECT_EQ(baseline_name("baseline_naive Bayes"), "naive Bayes");  // in earlier runs
}

}  // namespace
}  // namespace qkv::baseline_test
