// Scores of classes, tags and answers, by hand.
#include "qkv/metrics/scores.h"

#include <gtest/gtest.h>

#include <cmath>

namespace qkv::scores_test {
namespace {

ConfusionMatrix matrix(const std::vector<std::vector<int64_t>>& rows) {
  ConfusionMatrix m(std::ssize(rows));
  for (int64_t g = 0; g < m.classes; ++g)
    for (int64_t p = 0; p < m.classes; ++p)
      for (int64_t n = 0; n < rows[g][p]; ++n) m.add(g, p);
  return m;
}

TEST(Scores, AccuracyAndF1) {
  const ConfusionMatrix m = matrix({{2, 1, 0}, {0, 3, 1}, {0, 0, 0}});
  EXPECT_EQ(m.total(), 7);
  EXPECT_DOUBLE_EQ(m.accuracy(), 5.0 / 7);
  EXPECT_DOUBLE_EQ(m.f1(0), 2 * 1.0 * (2.0 / 3) / (1.0 + 2.0 / 3));  // P = 1, R = 2/3
  EXPECT_DOUBLE_EQ(m.f1(1), 0.75);
  EXPECT_EQ(m.f1(2), 0);  // predicted, but never gold
  EXPECT_DOUBLE_EQ(m.macro_f1(), (0.8 + 0.75) / 3);
  // A class that is never seen does not count; one that is only predicted does.
  EXPECT_DOUBLE_EQ(matrix({{2, 1, 0, 0}, {0, 3, 1, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}).macro_f1(), m.macro_f1());
}

TEST(Scores, MatthewsOfTwoClasses) {
  EXPECT_NEAR(matrix({{3, 1}, {2, 6}}).matthews(), (6 * 3 - 1 * 2) / std::sqrt(7.0 * 8 * 4 * 5), 1e-12);
  EXPECT_DOUBLE_EQ(matrix({{5, 0}, {0, 2}}).matthews(), 1);
  EXPECT_DOUBLE_EQ(matrix({{0, 5}, {2, 0}}).matthews(), -1);
  EXPECT_EQ(matrix({{5, 0}, {2, 0}}).matthews(), 0);  // always the same class
  EXPECT_EQ(matrix({{1, 1}, {1, 1}}).matthews(), 0);
}

TEST(Scores, MatthewsOfSeveral) {
  // Gold 2 0 2 2 0 1, predicted 0 0 2 2 0 2: (4 6 - 15) / sqrt((36 - 18) (36 - 14)).
  const ConfusionMatrix m = matrix({{2, 0, 0}, {0, 0, 1}, {1, 0, 2}});
  EXPECT_NEAR(m.matthews(), 9 / std::sqrt(18.0 * 22), 1e-12);
}

TEST(Scores, PrecisionAndRecall) {
  const ConfusionMatrix m = matrix({{2, 1, 0}, {0, 3, 1}, {0, 0, 0}});
  EXPECT_EQ(m.gold(1), 4);
  EXPECT_EQ(m.predicted(1), 4);
  EXPECT_DOUBLE_EQ(m.precision(0), 1);
  EXPECT_DOUBLE_EQ(m.recall(0), 2.0 / 3);
  EXPECT_EQ(m.precision(2), 0);
  EXPECT_EQ(m.recall(2), 0);  // never gold
}

// Examples without a predicted class are wrong, as if predicted as a class that does not exist.
TEST(Scores, WhatWasMissedIsWrong) {
  ConfusionMatrix m = matrix({{3, 1}, {2, 6}});
  m.miss(0);
  m.miss(0);
  m.miss(1);
  EXPECT_EQ(m.total(), 15);
  EXPECT_DOUBLE_EQ(m.accuracy(), 9.0 / 15);
  EXPECT_DOUBLE_EQ(m.recall(0), 3.0 / 6);
  EXPECT_DOUBLE_EQ(m.precision(0), 3.0 / 5);
  EXPECT_DOUBLE_EQ(m.f1(0), 2 * 3.0 / (6 + 5));
  EXPECT_DOUBLE_EQ(m.macro_f1(), (2 * 3.0 / 11 + 2 * 6.0 / 16) / 2);
  EXPECT_DOUBLE_EQ(m.matthews(), matrix({{3, 1, 2}, {2, 6, 1}, {0, 0, 0}}).matthews());
}

TEST(Scores, OfNothing) {
  const ConfusionMatrix none(3);
  EXPECT_EQ(none.accuracy(), 0);
  EXPECT_EQ(none.macro_f1(), 0);
  EXPECT_EQ(none.matthews(), 0);
  EXPECT_EQ(ChunkCounts{}.f1(), 0);
}

using Tags = std::vector<std::string>;
using Chunks = std::vector<Chunk>;

TEST(Scores, ChunksOfBio) {
  EXPECT_EQ(chunks_of(Tags{"B-PER", "I-PER", "O", "B-LOC"}), (Chunks{{0, 2, "PER"}, {3, 4, "LOC"}}));
  EXPECT_EQ(chunks_of(Tags{"B-X", "B-X", "I-X"}), (Chunks{{0, 1, "X"}, {1, 3, "X"}}));
  EXPECT_EQ(chunks_of(Tags{"I-X", "I-X", "O", "I-X"}), (Chunks{{0, 2, "X"}, {3, 4, "X"}}));
  EXPECT_EQ(chunks_of(Tags{"B-X", "I-Y", "I-Y"}), (Chunks{{0, 1, "X"}, {1, 3, "Y"}}));
  EXPECT_EQ(chunks_of(Tags{"O", "O"}), Chunks{});
  EXPECT_EQ(chunks_of(Tags{}), Chunks{});
  EXPECT_EQ(chunks_of(Tags{"B-a-b", "I-a-b"}), (Chunks{{0, 2, "a-b"}}));
}

TEST(Scores, ChunksOfIobes) {
  EXPECT_EQ(chunks_of(Tags{"B-X", "I-X", "E-X", "S-X", "S-X"}),
            (Chunks{{0, 3, "X"}, {3, 4, "X"}, {4, 5, "X"}}));
  EXPECT_EQ(chunks_of(Tags{"B-X", "E-X", "I-X"}), (Chunks{{0, 2, "X"}, {2, 3, "X"}}));  // E closes
  EXPECT_EQ(chunks_of(Tags{"S-X", "E-X"}), (Chunks{{0, 1, "X"}, {1, 2, "X"}}));
  EXPECT_EQ(chunks_of(Tags{"B-X", "E-Y"}), (Chunks{{0, 1, "X"}, {1, 2, "Y"}}));
}

TEST(Scores, OtherTagsAreAChunkEach) {
  EXPECT_EQ(chunks_of(Tags{"NN", "NN", "VB"}), (Chunks{{0, 1, "NN"}, {1, 2, "NN"}, {2, 3, "VB"}}));
  EXPECT_EQ(chunks_of(Tags{"I", "B-", "O"}), (Chunks{{0, 1, "I"}, {1, 2, "B-"}}));
}

TEST(Scores, TagsThatDescribeChunks) {
  EXPECT_TRUE(describe_chunks(Tags{"O", "B-PER"}));
  EXPECT_TRUE(describe_chunks(Tags{"I-X", "O"}));
  EXPECT_TRUE(describe_chunks(Tags{"B-X", "E-X", "I-X", "O", "S-X"}));
  EXPECT_FALSE(describe_chunks(Tags{"NOUN", "O", "VERB", "-LRB-", "B", "I-"}));
  EXPECT_FALSE(describe_chunks(Tags{}));
}

TEST(Scores, ChunkF1) {
  ChunkCounts c;
  c.add(Tags{"B-PER", "I-PER", "O", "B-LOC"}, Tags{"B-PER", "O", "O", "B-LOC"});
  EXPECT_EQ(c.gold, 2);
  EXPECT_EQ(c.predicted, 2);
  EXPECT_EQ(c.correct, 1);
  EXPECT_DOUBLE_EQ(c.f1(), 0.5);
  c.add(Tags{"O", "B-X"}, Tags{"B-X", "B-Y"});  // added up, not averaged
  EXPECT_DOUBLE_EQ(c.f1(), 2.0 * 1 / (3 + 4));
  EXPECT_DOUBLE_EQ(c.precision(), 1.0 / 4);
  EXPECT_DOUBLE_EQ(c.recall(), 1.0 / 3);
}

TEST(Scores, Answers) {
  EXPECT_DOUBLE_EQ(answer_f1("The cat sat.", "a  CAT!"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(answer_f1("to be or not to be", "to to to"),
                   4.0 / 9);  // each word as often as both have it
  EXPECT_DOUBLE_EQ(answer_f1("x", "y"), 0);
  EXPECT_DOUBLE_EQ(answer_f1("the", "an"), 1);  // nothing on both sides
  EXPECT_DOUBLE_EQ(answer_f1("the", "cat"), 0);
  EXPECT_TRUE(answer_matches("The U.S.", "us"));
  EXPECT_FALSE(answer_matches("b a c", "c b"));
  EXPECT_FALSE(answer_matches("cat", "cats"));
}

// Labels a, b, c: a is found twice of two, b once of two and once too often, c never occurs.
TEST(LabelSets, CountEachLabelAndWholeSets) {
  LabelSets sets(3);
  sets.add({true, false, false}, {true, false, false});
  sets.add({true, true, false}, {true, true, false});
  sets.add({false, true, false}, {false, false, false});
  sets.add({false, false, false}, {false, true, false});
  EXPECT_DOUBLE_EQ(sets.precision(1), 0.5);
  EXPECT_DOUBLE_EQ(sets.recall(1), 0.5);
  EXPECT_DOUBLE_EQ(sets.f1(0), 1);
  EXPECT_EQ(sets.gold(1), 2);
  EXPECT_DOUBLE_EQ(sets.micro_f1(), 2.0 * 3 / (4 + 4));
  EXPECT_DOUBLE_EQ(sets.macro_f1(), (1 + 0.5) / 2);  // c does not occur
  EXPECT_DOUBLE_EQ(sets.exact_match(), 0.5);
  EXPECT_EQ(LabelSets(2).micro_f1(), 0);
}

// By hand: the means are 2 and 3; ranks 1, 2.5, 2.5, 4 and 2, 1, 3, 4.
TEST(NumberPairs, ErrorsAndCorrelations) {
  NumberPairs p{{0, 2, 2, 4}, {2, 1, 3, 6}};
  EXPECT_DOUBLE_EQ(p.rmse(), std::sqrt((4 + 1 + 1 + 4) / 4.0));
  EXPECT_DOUBLE_EQ(p.mae(), (2 + 1 + 1 + 2) / 4.0);
  EXPECT_DOUBLE_EQ(p.pearson(), (2 + 0 + 0 + 6) / std::sqrt(8.0 * (1 + 4 + 0 + 9)));
  EXPECT_DOUBLE_EQ(p.spearman(), (0.75 + 0 + 0 + 2.25) / std::sqrt(4.5 * 5.0));
  p.predicted = {1, 1, 1, 1};
  EXPECT_EQ(p.pearson(), 0);
  EXPECT_EQ(NumberPairs().rmse(), 0);
  p.predicted = {1, NAN, NAN, 2};
  EXPECT_LE(std::abs(p.spearman()), 1);  // ends
}

}  // namespace
}  // namespace qkv::scores_test
