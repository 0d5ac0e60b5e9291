// Values on their way to another rank.
#include "qkv/base/message.h"

#include <gtest/gtest.h>

#include "tests/unit/expect_error.h"

namespace qkv::message_test {
namespace {

TEST(Message, BringsValuesAndTextsBack) {
  std::string message;
  put_text(message, std::string("a\0b", 3));
  put(message, 0.1);
  put_text(message, "");
  put(message, int8_t{-3});
  std::string_view left = message;
  EXPECT_EQ(take_text(left), std::string("a\0b", 3));
  EXPECT_EQ(take<double>(left), 0.1);
  EXPECT_EQ(take_text(left), "");
  EXPECT_EQ(take<int8_t>(left), -3);
  EXPECT_TRUE(left.empty());
}

TEST(Message, RejectsOneThatIsCutShort) {
  std::string message;
  put_text(message, "text");
  for (size_t length = 0; length < message.size(); ++length) {
    std::string_view left = std::string_view(message).substr(0, length);
    testing::expect_error([&] { take_text(left); }, {"cut short"});
  }
}

}  // namespace
}  // namespace qkv::message_test
