// Data in rows of named columns.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/data/text_file.h"

namespace qkv {

// A file's rows; each has a text for every column.
struct Table {
  std::string path;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<int64_t> lines;  // line of the file where each row begins, from 1

  // Index of the column. Throws Error naming the file and the most similar column, or the delimiter that
  // the file seems to use.
  size_t column(std::string_view name) const;
};

// Reads a file by its format (format_of). .tsv: a header and rows whose fields have no tabs. .csv: the same
// with commas and RFC 4180's quotes. .jsonl: an object of strings and numbers on each line, all with the
// keys of the first (options.text_columns: others may hold anything). Throws Error naming file, line and
// column of ragged rows and wrong quotes.
Table read_table(const std::string& path, const FileOptions& options = {}, Notes* notes = nullptr);

// One row. `text` is the row as in the file, without its line end.
struct TableRow {
  std::vector<std::string> fields;
  int64_t line = 0;  // line where it begins, from 1
  std::string_view text;
};

// The same in bounded memory. Calls `on_columns` with a table without rows, then `on_row` with each row,
// whose fields it may move.
using OnColumns = std::function<void(const Table& head)>;
using OnRow = std::function<void(TableRow& row)>;
void for_each_row(const std::string& path, const FileOptions& options, const OnColumns& on_columns,
                  const OnRow& on_row, Notes* notes = nullptr);

// Reads only the names of the columns.
std::vector<std::string> read_header(const std::string& path, const FileOptions& options = {});

// The delimiter of a .csv or .tsv file.
char delimiter_of(const std::string& path, const FileOptions& options);
// A field as written into such a file. In a .csv file it gets RFC 4180's quotes if it needs them; in a .tsv
// file spaces replace tabs and line ends.
std::string field_text(std::string field, const std::string& path, const FileOptions& options);

// Calls `f` with corresponding lines of two files. Throws Error if they have different numbers of lines.
void for_each_parallel_line(const std::string& source, const std::string& target,
                            const std::function<void(std::string_view source, std::string_view target)>& f,
                            const FileOptions& options = {}, Notes* notes = nullptr);

// A text's lines without their ends ("\n" or "\r\n").
std::vector<std::string> lines_of(std::string_view text);

}  // namespace qkv
