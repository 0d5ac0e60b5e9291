// Files compressed by gzip and zstd, intact and damaged.
#include "qkv/base/unpack.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>

#include "qkv/base/file.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::unpack_test {
namespace {

using testing::expect_error;
using testing::ScratchDir;

template <size_t n>
std::string bytes(const char (&text)[n]) {
  return {text, n - 1};
}

// "a\nb\n", and a hundred thousand zeros.
const std::string kGzip =
    bytes("\037\213\010\000\000\000\000\000\002\377\113\344\112\342\002\000\227\052\127\030\004\000\000\000");
const std::string kZstd = bytes("\050\265\057\375\040\004\041\000\000\141\012\142\012");
const std::string kZeros =
    bytes("\050\265\057\375\240\240\206\001\000\125\000\000\020\000\000\001\000\233\206\071\300\002");

std::string unpacked(const std::string& packed, int64_t most = 0) {
  std::string out;
  unpack(
      packed, packing_of(packed), "x", [&](std::string_view part) { out += part; }, most);
  return out;
}

TEST(Unpack, KnowsPackedFiles) {
  EXPECT_EQ(packing_of(kGzip), Packing::gzip);
  EXPECT_EQ(packing_of(kZstd), Packing::zstd);
  EXPECT_EQ(packing_of("a text"), Packing::none);
  EXPECT_EQ(packing_of(""), Packing::none);
  EXPECT_EQ(packing_by_name("a.csv.GZ"), Packing::gzip);
  EXPECT_EQ(packing_by_name("a.zst"), Packing::zstd);
  EXPECT_EQ(packing_by_name("a.zstd"), Packing::zstd);
  EXPECT_EQ(packing_by_name("gz"), Packing::none);
  EXPECT_EQ(without_packing("d/a.csv.gz"), "d/a.csv");
  EXPECT_EQ(without_packing("a.csv"), "a.csv");
}

TEST(Unpack, GivesWhatWasPacked) {
  EXPECT_EQ(unpacked(kGzip), "a\nb\n");
  EXPECT_EQ(unpacked(kZstd), "a\nb\n");
  EXPECT_EQ(unpacked(kZeros), std::string(100000, '\0'));
  // Concatenated files are one file.
  EXPECT_EQ(unpacked(kGzip + kGzip), "a\nb\na\nb\n");
  EXPECT_EQ(unpacked(kZstd + kZstd), "a\nb\na\nb\n");
}

TEST(Unpack, RefusesWhatIsDamaged) {
  for (const std::string& packed : {kGzip, kZstd, kZeros})
    for (size_t size = 5; size < packed.size(); ++size)
      expect_error([&] { unpacked(packed.substr(0, size)); }, {"x: cut short"});
  expect_error([] { unpacked(kGzip + "more"); }, {"x: damaged gzip", "follow"});
  std::string wrong = kGzip;
  wrong[wrong.size() - 6] ^= 1;  // in the checksum
  expect_error([&] { unpacked(wrong); }, {"x: damaged gzip"});
  wrong = kZstd;
  wrong[8] = '\xFF';
  expect_error([&] { unpacked(wrong); }, {"x: damaged zstd"});
}

TEST(Unpack, RefusesWhatWouldFillTheDisk) {
  EXPECT_EQ(unpacked(kZeros, 100000).size(), 100000u);
  expect_error([] { unpacked(kZeros, 99999); }, {"x: holds more than 99999 bytes"});
  expect_error([] { unpacked(kGzip, 3); }, {"x: holds more than 3 bytes"});
  EXPECT_EQ(most_unpacked(1000), int64_t{1} << 30);
  EXPECT_EQ(most_unpacked(int64_t{1} << 30), 100 * (int64_t{1} << 30));
}

TEST(Unpack, FilesAreReadAsIfTheyWereNotPacked) {
  const ScratchDir dir;
  for (const auto& [name, packed] : {std::pair("a.txt.gz", kGzip), {"a.txt.zst", kZstd}, {"a.txt", kGzip}}) {
    const std::string path = dir.write(name, packed);
    EXPECT_EQ(map_text(path).text, "a\nb\n");
    EXPECT_EQ(read_data_file(path), "a\nb\n");
  }
  const std::string plain = dir.write("b.gz", "no gzip"), other = dir.write("c.gz", kZstd);
  expect_error([&] { map_text(plain); }, {"b.gz", "no gzip data"});
  expect_error([&] { map_text(other); }, {"c.gz", "no gzip data"});
  const std::string cut = dir.write("d.gz", kGzip.substr(0, 20));
  expect_error([&] { map_text(cut); }, {"d.gz", "cut short"});
}

TEST(Unpack, WhatIsMissingIsSaidToBe) {
  const ScratchDir dir;
  for (const auto& open : {std::function([](const std::string& p) { read_file(p); }),
                           std::function([](const std::string& p) { map_text(p); }),
                           std::function([](const std::string& p) { MappedFile::open(p); })}) {
    errno = ENOTTY;  // left from another call
    expect_error([&] { open(dir.path() + "/none.txt"); }, {"none.txt", "No such file"});
    expect_error([&] { open(dir.path() + "/*.txt"); }, {"*.txt: no such file", "not expanded", "list"});
  }
}

}  // namespace
}  // namespace qkv::unpack_test
