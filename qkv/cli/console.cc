#include "qkv/cli/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "qkv/base/file.h"

namespace qkv {
namespace {

bool is_standard_input(const std::string& file) {
  return file.empty() || file == "-";
}

}  // namespace

void expect_standard_input() {
  check(::fcntl(STDIN_FILENO, F_GETFD) != -1, "standard input is closed: give a file or a prompt");
  if (::isatty(STDIN_FILENO) != 0) fmt::print(stderr, "Reading from the terminal; Ctrl-D ends the input.\n");
}

std::string read_input(const std::string& file) {
  if (!is_standard_input(file)) return read_file(file);
  expect_standard_input();
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

std::string input_name(const std::string& file) {
  return is_standard_input(file) ? "standard input" : file;
}

void for_each_lines(const std::string& file, int64_t at_once,
                    const std::function<void(const std::vector<std::string>& lines, int64_t first)>& f) {
  std::ifstream opened;
  const bool standard = is_standard_input(file);
  if (standard) expect_standard_input();
  if (!standard) {
    check(!std::filesystem::is_directory(file), "{}: is a directory, expected a file", file);
    opened.open(file, std::ios::binary);
    check(opened.good(), "{}: cannot be opened", file);
  }
  std::istream& in = standard ? std::cin : opened;
  if (at_once == 0) at_once = standard && isatty(STDIN_FILENO) != 0 ? 1 : 1024;
  std::vector<std::string> lines;
  int64_t first = 1;
  const auto give = [&] {
    if (!lines.empty()) f(lines, first);
    first += std::ssize(lines);
    lines.clear();
  };
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.emplace_back(first == 1 && lines.empty() ? without_mark(line) : std::string_view(line));
    if (std::ssize(lines) == at_once) give();
  }
  check(!in.bad(), "{}: cannot be read", input_name(file));
  give();
}

void read_json_lines(const std::string& file,
                     const std::function<void(const Json& value, const std::string& place)>& f) {
  if (is_standard_input(file)) {
    expect_standard_input();
    return for_each_json_line(std::cin, input_name(file), f);
  }
  std::ifstream in(file, std::ios::binary);
  check(in.good(), "{}: cannot be opened", file);
  for_each_json_line(in, file, f);
  check(!in.bad(), "{}: cannot be read", file);  // a directory, for one
}

std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  const auto width = [](const std::string& s) {  // in characters
    return static_cast<size_t>(std::count_if(
        s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  };
  for (const auto& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width(row[c]));
  std::string out;
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string space(widths[c] - width(row[c]), ' ');
      out += c == 0 ? row[c] + space : "  " + space + row[c];
    }
    out += "\n";
  }
  return out;
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  check(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, "standard output cannot be written");
}

void finish_output() {
  std::cout.flush();
  check(std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0,
        "standard output cannot be written");
}

std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

}  // namespace qkv
