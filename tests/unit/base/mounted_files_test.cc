#include "qkv/base/mounted_files.h"

#include <gtest/gtest.h>

#include "qkv/base/file.h"
#include "tests/unit/expect_error.h"

namespace qkv::mounted_files_test {
namespace {

using testing::expect_error;

TEST(MountedFiles, AreReadAsIfTheyWereInAFolder) {
  EXPECT_FALSE(is_mounted("no/such/box"));
  EXPECT_FALSE(file_exists("no/such/box/a.txt"));
  mount_files("no/such/box", {{"a.txt", "one"}, {"b.txt", ""}});
  EXPECT_TRUE(is_mounted("no/such/box"));
  EXPECT_TRUE(file_exists("no/such/box/a.txt") && file_exists("no/such/box/b.txt"));
  EXPECT_FALSE(file_exists("no/such/box/c.txt") || file_exists("no/such/box") || file_exists("a.txt"));
  EXPECT_EQ(read_file("no/such/box/a.txt"), "one");
  EXPECT_EQ(read_file("no/such/box/b.txt"), "");
  expect_error([] { read_file("no/such/box/c.txt"); }, {"no/such/box/c.txt"});
  mount_files("no/such/box", {{"c.txt", "three"}});
  EXPECT_FALSE(file_exists("no/such/box/a.txt"));
  EXPECT_EQ(mounted_file("no/such/box/c.txt"), "three");
}

}  // namespace
}  // namespace qkv::mounted_files_test
