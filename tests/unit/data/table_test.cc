// Rows of named columns, good and bad.
#include "qkv/data/table.h"

#include <gtest/gtest.h>

#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::table_test {
namespace {

using testing::expect_error;
using testing::ScratchDir;

class TableTest : public ::testing::Test {
 protected:
  Table read(const std::string& name, const std::string& text) { return read_table(dir_.write(name, text)); }
  void refuse(const std::string& name, const std::string& text, std::initializer_list<std::string> parts) {
    expect_error([&] { read(name, text); }, parts);
  }
  ScratchDir dir_;
};

using Rows = std::vector<std::vector<std::string>>;

Rows parallel(const std::string& source, const std::string& target) {
  Rows out;
  for_each_parallel_line(source, target, [&](std::string_view a, std::string_view b) {
    out.push_back({std::string(a), std::string(b)});
  });
  return out;
}

TEST_F(TableTest, Tsv) {
  const Table t = read("a.tsv", "source\ttarget\nein \"Haus\"\ta house\n\tb\r\nlast\tline");
  EXPECT_EQ(t.columns, (std::vector<std::string>{"source", "target"}));
  EXPECT_EQ(t.rows, (Rows{{"ein \"Haus\"", "a house"}, {"", "b"}, {"last", "line"}}));
  EXPECT_EQ(t.lines, (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(t.column("target"), 1u);
}

TEST_F(TableTest, Csv) {
  const Table t = read("a.csv", "text,label\n\"one, \"\"two\"\"\nthree\",x\r\n,\"\"\nplain,y\n");
  EXPECT_EQ(t.rows, (Rows{{"one, \"two\"\nthree", "x"}, {"", ""}, {"plain", "y"}}));
  EXPECT_EQ(t.lines, (std::vector<int64_t>{2, 4, 5}));  // the first record has two lines
}

TEST_F(TableTest, JsonLines) {
  const Table t =
      read("a.jsonl", "{\"text\": \"a\\tb\", \"n\": 3}\n\n{\"n\": 4.5, \"text\": \"\", \"more\": []}\n");
  EXPECT_EQ(t.rows[0][t.column("text")], "a\tb");
  EXPECT_EQ(t.rows[0][t.column("n")], "3");
  EXPECT_EQ(t.rows[1][t.column("n")], "4.5");
  EXPECT_EQ(t.lines, (std::vector<int64_t>{1, 3}));
}

TEST_F(TableTest, GivenColumns) {
  const std::string tsv = dir_.write("a.tsv", "1\tone\n2\ttwo\n"), csv = dir_.write("a.csv", "1,\"o,ne\"\n");
  const Table t = read_table(tsv, {.columns = {"label", "text"}});
  EXPECT_EQ(t.columns, (std::vector<std::string>{"label", "text"}));
  EXPECT_EQ(t.rows, (Rows{{"1", "one"}, {"2", "two"}}));  // the first line is a row
  EXPECT_EQ(t.lines, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(read_table(csv, {.columns = {"label", "text"}}).rows, (Rows{{"1", "o,ne"}}));
  expect_error(
      [&] {
        read_table(tsv, {.columns = {"a", "b", "c"}});
      },
      {"a.tsv:1", "3 fields (a, b, c)", "got 2"});
}

TEST_F(TableTest, OtherDelimitersAndNames) {
  const std::string semicolons = dir_.write("semi.csv", "text;label\n\"a;b\";x\nc,d;y\n"),
                    quoted = dir_.write("quoted.csv", "\"text\";\"label\"\n\"a\";\"x\"\n"),
                    capitals = dir_.write("GOOD.CSV", "text,label\na,x\n"),
                    plain = dir_.write("rows.txt", "text\tlabel\na\tx\n"),
                    commas = dir_.write("commas.tsv", "text,label\na,x\n");
  EXPECT_EQ(read_table(semicolons, {.delimiter = ";"}).rows, (Rows{{"a;b", "x"}, {"c,d", "y"}}));
  EXPECT_EQ(read_table(quoted, {.delimiter = ";"}).rows, (Rows{{"a", "x"}}));
  EXPECT_EQ(read_table(capitals).rows, (Rows{{"a", "x"}}));
  EXPECT_EQ(read_table(plain, {.format = "tsv"}).rows, (Rows{{"a", "x"}}));
  EXPECT_EQ(read_table(plain, {.delimiter = "\\t"}).rows, (Rows{{"a", "x"}}));
  // Errors name the character that seems to separate the columns.
  expect_error([&] { read_table(semicolons).column("text"); },
               {"semi.csv seems to be divided by \";\"", "data.delimiter = \";\""});
  expect_error([&] { read_table(quoted); }, {"quoted.csv seems to be divided by \";\""});
  expect_error([&] { read_table(semicolons, {.columns = {"text", "label"}}); }, {"divided by \";\""});
  expect_error([&] { read_table(commas).column("text"); }, {"commas.tsv", "data.format = \"csv\""});
  expect_error([&] { read_table(plain, {.format = "csv"}).column("text"); }, {"data.format = \"tsv\""});
  expect_error([&] { read_table(semicolons, {.delimiter = ";;"}); }, {"one character", "';;'"});
  EXPECT_EQ(read("one.csv", "text\na\n").column("text"), 0u);  // a single column has no separator
}

TEST_F(TableTest, LineEndsInQuotes) {
  const std::string path = dir_.write("a.csv", "text\r\n\"a\r\nb\"\r\n");
  Notes notes;
  EXPECT_EQ(read_table(path, {}, &notes).rows, (Rows{{"a\nb"}}));
  EXPECT_EQ(notes.size(), 1u);
  EXPECT_EQ(read_table(path, {.keep_carriage_returns = true}).rows, (Rows{{"a\r\nb"}}));
}

TEST_F(TableTest, BadFilesAreRefusedByPlace) {
  refuse("a.tsv", "a\tb\n1\t2\n1\t2\t3\n", {"a.tsv:3", "2 fields (a, b)", "got 3"});
  refuse("b.csv", "a,b\n\"x,y\nz\n", {"b.csv:2", "field 1", "never closed"});
  refuse("c.csv", "a,b\n1,\"x\"y\n", {"c.csv:2", "field 2", "after the quote"});
  refuse("d.csv", "a,b\n1,x\"y\n", {"d.csv:2", "field 2", "not quoted"});
  refuse("e.jsonl", "{\"a\": \"x\"}\n{\"b\": \"x\"}\n", {"e.jsonl:2", "a"});
  refuse("f.jsonl", "{\"a\": [1]}\n", {"f.jsonl:1", "a"});
  refuse("g.tsv", "", {"g.tsv", "empty"});
  refuse("h.txt", "x\n", {"h.txt", ".tsv"});
  refuse("j.tsv", "a\tb\ta\n1\t2\t3\n", {"j.tsv:1", "columns 1 and 3", "'a'"});
  const Table t = read("i.tsv", "source\ttarget\n1\t2\n");
  expect_error([&] { t.column("sorce"); }, {"i.tsv", "sorce", "source"});
}

// The byte order mark that some editors write is not part of the text.
TEST_F(TableTest, AByteOrderMarkIsLeftOut) {
  EXPECT_EQ(read("a.tsv",
                 "\xEF\xBB\xBF"
                 "a\tb\n1\t2\n")
                .columns,
            (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read("a.csv",
                 "\xEF\xBB\xBF"
                 "a,b\n1,2\n")
                .columns,
            (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(lines_of("\xEF\xBB\xBF"
                     "a\nb"),
            (std::vector<std::string>{"a", "b"}));
}

TEST_F(TableTest, ParallelFiles) {
  const std::string en = dir_.write("en", "a\n\nc\n"), de = dir_.write("de", "x\r\ny\r\nz"),
                    fr = dir_.write("fr", "x\ny\n");
  EXPECT_EQ(parallel(en, de), (Rows{{"a", "x"}, {"", "y"}, {"c", "z"}}));
  expect_error([&] { parallel(en, fr); }, {"3 lines", "has 2"});
}

}  // namespace
}  // namespace qkv::table_test
