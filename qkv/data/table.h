// Data that comes as rows of named columns.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/data/text_file.h"

namespace qkv {

// A file's rows, each with a text for every column.
struct Table {
  std::string path;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<int64_t> lines;  // where each row begins in the file, from 1

  // The column's place. Throws Error naming the file and the nearest column, or what the file seems to be
  // divided by.
  size_t column(std::string_view name) const;
};

// By the file's format (format_of): .tsv, a header and rows whose fields hold no tab; .csv, the same with
// commas and RFC 4180's quotes; .jsonl, an object of strings and numbers a line, all with the keys of the
// first. Throws Error naming file, line and column of what is ragged or mis-quoted.
Table read_table(const std::string& path, const FileOptions& options = {}, Notes* notes = nullptr);

// One row. `text` is the row as it stands in the file, without its line's end.
struct TableRow {
  std::vector<std::string> fields;
  int64_t line = 0;  // where it begins, from 1
  std::string_view text;
};

// The same in bounded memory: calls `on_columns` with a table that has no rows yet, and then `on_row` with
// each row, whose fields it may take.
using OnColumns = std::function<void(const Table& head)>;
using OnRow = std::function<void(TableRow& row)>;
void for_each_row(const std::string& path, const FileOptions& options, const OnColumns& on_columns,
                  const OnRow& on_row, Notes* notes = nullptr);

// The names of the columns alone.
std::vector<std::string> read_header(const std::string& path, const FileOptions& options = {});

// The character that divides the columns of a .csv or .tsv file.
char delimiter_of(const std::string& path, const FileOptions& options);
// A field as it is written into such a file: in RFC 4180's quotes where a .csv file needs them; in a .tsv
// file with spaces in place of tabs and line ends.
std::string field_text(std::string field, const std::string& path, const FileOptions& options);

// Calls `f` with the lines of two files side by side. Throws Error where their numbers differ.
void for_each_parallel_line(const std::string& source, const std::string& target,
                            const std::function<void(std::string_view source, std::string_view target)>& f,
                            const FileOptions& options = {}, Notes* notes = nullptr);

// A text's lines without their ends ("\n" or "\r\n").
std::vector<std::string> lines_of(std::string_view text);

}  // namespace qkv
