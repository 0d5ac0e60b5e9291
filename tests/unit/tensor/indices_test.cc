#include "qkv/tensor/indices.h"

#include <gtest/gtest.h>

#include <vector>

#include "qkv/base/error.h"
#include "tests/unit/expect_error.h"

namespace qkv::indices_test {
namespace {

using testing::expect_error;

TEST(Indices, AreUndefinedUntilTheyAreMade) {
  const Indices none;
  EXPECT_FALSE(none.defined());
  EXPECT_EQ(none.count(), 0);
  EXPECT_TRUE(none.values().empty());
  EXPECT_EQ(fmt::format("{}", none), "nothing");
  expect_error([&] { none[0]; }, {"element 0 of 0"});
  const Indices empty((std::vector<int32_t>()));
  EXPECT_TRUE(empty.defined());
  EXPECT_EQ(empty.shape(), (Shape{0}));
}

TEST(Indices, HoldValuesAndRows) {
  const Indices flat({4, 0, 7});
  EXPECT_EQ(flat.shape(), (Shape{3}));
  EXPECT_EQ(flat[2], 7);
  EXPECT_EQ(fmt::format("{}", flat), "[3]");
  const Indices pairs({1, 2, 3, 4, 5, 6}, 2);
  EXPECT_EQ(pairs.shape(), (Shape{3, 2}));
  EXPECT_EQ(pairs.rows(), 3);
  EXPECT_EQ(pairs.row(1)[0], 3);
  EXPECT_EQ(pairs.row(2)[1], 6);
  EXPECT_EQ(Indices::zeros(2)[1], 0);
}

TEST(Indices, CheckTheirBounds) {
  const Indices pairs({1, 2, 3, 4}, 2);
  expect_error([&] { pairs[4]; }, {"element 4 of 4"});
  expect_error([&] { pairs[-1]; }, {"element -1 of 4"});
  expect_error([&] { pairs.row(2); }, {"4 on, of 4"});
  expect_error([] { Indices({1, 2, 3}, 2); }, {"3 values", "rows of 2"});
  expect_error([] { Indices({1}, 0); }, {"rows of 0"});
}

}  // namespace
}  // namespace qkv::indices_test
