// Files of data as people have them.
#include "qkv/data/text_file.h"

#include <gtest/gtest.h>

#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::text_file_test {
namespace {

using testing::expect_error;
using testing::ScratchDir;

TEST(TextFile, FormatsAreToldByNames) {
  EXPECT_EQ(format_of("a.csv"), FileFormat::csv);
  EXPECT_EQ(format_of("A.CSV"), FileFormat::csv);
  EXPECT_EQ(format_of("a.Tsv.gz"), FileFormat::tsv);
  EXPECT_EQ(format_of("a.jsonl.ZST"), FileFormat::jsonl);
  EXPECT_EQ(format_of("a.conllu"), FileFormat::conllu);
  EXPECT_EQ(format_of("a.conll"), FileFormat::conll);
  for (const char* name : {"a.txt", "csv", "a.csv.txt", "a", ".gz"}) {
    EXPECT_EQ(format_of(name), FileFormat::text) << name;
    EXPECT_FALSE(is_of_rows(name)) << name;
  }
  EXPECT_EQ(format_of("a.txt", {.format = "tsv"}), FileFormat::tsv);
  EXPECT_EQ(format_of("a.csv", {.format = "text"}), FileFormat::text);
  EXPECT_EQ(format_of("a.tsv", {.format = "auto", .delimiter = ";"}), FileFormat::tsv);
  EXPECT_EQ(format_of("a.txt", {.delimiter = ";"}), FileFormat::csv);  // it has rows, then
  expect_error([] { format_of("a", {.format = "xml"}); }, {"'xml'", "csv"});
}

TEST(TextFile, WhatIsNoTextIsNamedWithItsCure) {
  const auto problem = [](const std::string& text) { return problem_of_text(text, "a.txt"); };
  for (const char* good : {"", "plain", "caf\xC3\xA9 and more than eight bytes", "\xF0\x9F\x98\x80", "BZh"})
    EXPECT_EQ(problem(good), "") << good;
  EXPECT_EQ(problem("caf\xE9"),
            "a.txt:1: byte 0xE9 at offset 3 is not UTF-8: convert it with iconv -f ISO-8859-1 -t UTF-8");
  EXPECT_EQ(problem("first line\nthe second caf\xE9 is here\n").find("a.txt:2: byte 0xE9 at offset 25"), 0u);
  // Some bytes are wrong where most are UTF-8.
  EXPECT_NE(problem("\xC3\xA9\xC3\xA9\xC3\xA9\xFF").find("iconv -c -f UTF-8 -t UTF-8"), std::string::npos);
  const auto of = [](std::string_view text) { return std::string(text); };
  EXPECT_EQ(problem("\xFF\xFE" + of({"a\0b\0", 4})),
            "a.txt: this file is UTF-16: convert it with iconv -f UTF-16 -t UTF-8");
  EXPECT_NE(problem(of({"a\0b\0c\0\n\0", 8})).find("iconv -f UTF-16LE"), std::string::npos);
  EXPECT_NE(problem(of({"\0a\0b\0c\0\n", 8})).find("iconv -f UTF-16BE"), std::string::npos);
  EXPECT_EQ(problem(of({"a text with a 0\0in it", 21})),
            "a.txt:1: byte 0x00 at offset 15: this is binary data, not text");
  std::string noise;
  for (int i = 0; i < 4096; ++i) noise += static_cast<char>(i * 7919 % 251 + 1);
  EXPECT_NE(problem(noise).find("looks like binary data"), std::string::npos);
  EXPECT_NE(problem("\xFD" + of({"7zXZ\0\xFF", 6})).find("xz -d"), std::string::npos);
  EXPECT_NE(problem("PK\x03\x04\xFF").find("zip"), std::string::npos);
}

TEST(TextFile, BytesOfAnyKindAreANoteWhereTheyAreWanted) {
  const ScratchDir dir;
  const std::string path = dir.write("latin1.txt", "caf\xE9\r\n");
  Notes notes;
  expect_error([&] { open_text(path, {}, &notes); }, {"latin1.txt:1", "0xE9", "iconv"});
  EXPECT_TRUE(notes.empty());
  for (int i = 0; i < 2; ++i)  // said once
    EXPECT_EQ(open_plain_text(path, {.any_bytes = true}, &notes).text, "caf\xE9\r\n");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(notes[0].starts_with("warning: ")) << notes[0];
  EXPECT_NE(notes[0].find("0xE9 at offset 3"), std::string::npos) << notes[0];
}

TEST(TextFile, WindowsLineEndsBecomeOthers) {
  const ScratchDir dir;
  const std::string path = dir.write("a.txt", "\r\na\r\n\r\nb\rc\r\n"), unix = dir.write("b.txt", "a\nb\r");
  Notes notes;
  EXPECT_EQ(open_plain_text(path, {}, &notes).text, "\na\n\nb\rc\n");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("a.txt: Windows line ends (\\r\\n)"), std::string::npos) << notes[0];
  notes.clear();
  EXPECT_EQ(open_plain_text(path, {.keep_carriage_returns = true}, &notes).text, "\r\na\r\n\r\nb\rc\r\n");
  EXPECT_EQ(open_plain_text(unix, {}, &notes).text, "a\nb\r");
  EXPECT_TRUE(notes.empty());
}

}  // namespace
}  // namespace qkv::text_file_test
