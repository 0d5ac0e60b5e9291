#include "qkv/base/progress.h"

#include <gtest/gtest.h>

namespace qkv::progress_test {
namespace {

TEST(Progress, BarsFillWithTheShare) {
  EXPECT_EQ(progress_bar(0, 9), "[       ]");
  EXPECT_EQ(progress_bar(0.5, 9), "[===    ]");
  EXPECT_EQ(progress_bar(1, 9), "[=======]");
  EXPECT_EQ(progress_bar(1.5, 4), "[==]");
}

TEST(Progress, LeavesOutTheLeastImportantParts) {
  const std::vector<LinePart> parts = {{"step 1/9", 3}, {"loss 4.0", 1}, {"lr 1e-3", 0}, {"0:06 left", 2}};
  EXPECT_EQ(fitted_line(parts, 100), "step 1/9  loss 4.0  lr 1e-3  0:06 left");
  EXPECT_EQ(fitted_line(parts, 38), "step 1/9  loss 4.0  lr 1e-3  0:06 left");
  EXPECT_EQ(fitted_line(parts, 37), "step 1/9  loss 4.0  0:06 left");
  EXPECT_EQ(fitted_line(parts, 20), "step 1/9  0:06 left");
  EXPECT_EQ(fitted_line(parts, 1), "step 1/9");
}

TEST(Progress, BreaksLinesBetweenWords) {
  EXPECT_EQ(wrapped("one two three", 13), "one two three");
  EXPECT_EQ(wrapped("one two three", 12), "one two\n  three");
  EXPECT_EQ(wrapped("one 1.23456789 two", 8), "one\n  1.23456789\n  two");
  EXPECT_EQ(wrapped("a\nb c d e", 5), "a\nb c d\n  e");
  EXPECT_EQ(wrapped("\033[1mone\033[0m two", 7), "\033[1mone\033[0m two");  // bold type takes no room
  EXPECT_EQ(wrapped("\u00e9\u00e9\u00e9 two", 7), "\u00e9\u00e9\u00e9 two");
}

TEST(Progress, Counts) {
  EXPECT_EQ(counted(1, "thread"), "1 thread");
  EXPECT_EQ(counted(0, "thread"), "0 threads");
  EXPECT_EQ(counted(12, "step"), "12 steps");
  EXPECT_EQ(grouped_count(7), "7");
  EXPECT_EQ(grouped_count(123), "123");
  EXPECT_EQ(grouped_count(1234), "1,234");
  EXPECT_EQ(grouped_count(1234567), "1,234,567");
  EXPECT_EQ(grouped_count(-123456), "-123,456");
}

}  // namespace
}  // namespace qkv::progress_test
