#include "qkv/cli/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>

#include "qkv/base/file.h"
#include "qkv/base/unpack.h"

namespace qkv {
namespace {

bool is_standard_input(const std::string& file) {
  return file.empty() || file == "-";
}

// A file or standard input as lines come, or what is packed in a file.
class Input {
 public:
  explicit Input(const std::string& file) {
    if (is_standard_input(file)) {
      expect_standard_input();
      return;
    }
    std::error_code ignored;
    check(!std::filesystem::is_directory(file, ignored), "{}: is a directory, expected a file", file);
    opened_.open(file, std::ios::binary);
    if (!opened_.good()) fail_to_open(file, errno);
    in_ = &opened_;
    if (packing_by_name(file) == Packing::none) return;
    unpacked_ = map_text(file);
    in_ = &text_.emplace(unpacked_.text);
  }
  std::istream& stream() { return *in_; }

 private:
  std::istream* in_ = &std::cin;
  std::ifstream opened_;
  FileText unpacked_;
  std::optional<TextStream> text_;
};

}  // namespace

void expect_standard_input() {
  check(::fcntl(STDIN_FILENO, F_GETFD) != -1, "standard input is closed: give a file or a prompt");
  if (::isatty(STDIN_FILENO) != 0) fmt::print(stderr, "Reading from the terminal; Ctrl-D ends the input.\n");
}

std::string read_input(const std::string& file) {
  if (!is_standard_input(file)) return read_data_file(file);
  expect_standard_input();
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

std::string input_name(const std::string& file) {
  return is_standard_input(file) ? "standard input" : file;
}

void for_each_lines(const std::string& file, int64_t at_once,
                    const std::function<void(const std::vector<std::string>& lines, int64_t first)>& f) {
  const bool standard = is_standard_input(file);
  Input input(file);
  std::istream& in = input.stream();
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
  Input input(file);
  for_each_json_line(input.stream(), input_name(file), f);
  check(!input.stream().bad(), "{}: cannot be read", input_name(file));
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

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) fmt::print(stderr, "{}\n", note);
}

std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

void reject_options(const std::set<std::string>& given, std::initializer_list<const char*> options,
                    const std::string& why) {
  for (const char* option : options)
    if (given.contains(option)) throw UsageError(fmt::format("{}: {}", option, why));
}

}  // namespace qkv
