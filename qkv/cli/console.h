// Input and output of subcommands.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/base/json.h"

namespace qkv {

// An input is a file, or standard input for "" and "-".
std::string read_input(const std::string& file);
// Called before standard input is read. Throws Error if it is closed; at a terminal, says what input is
// expected.
void expect_standard_input();
std::string input_name(const std::string& file);
// Calls `f` with up to `at_once` lines of an input, as soon as they are read, and the number of the first,
// from 1. Lines have no line ends. `at_once` 0: one line at a terminal, else 1024.
void for_each_lines(const std::string& file, int64_t at_once,
                    const std::function<void(const std::vector<std::string>& lines, int64_t first)>& f);
inline constexpr const char* kLinesHelp =
    "Lines to read before printing results; they are batched by length (default: 1024; 1 at a terminal)";
// Calls `f` with each line's value as it is read, and its place.
void read_json_lines(const std::string& file,
                     const std::function<void(const Json& value, const std::string& place)>& f);

// Columns of labels and numbers: the first to the left, the others to the right. REQUIRES: rows of one
// length.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

// Writes to standard output, without delay. Throws Error if that fails.
void print(const std::string& text);
// Flushes standard output. Throws Error if that fails: a full disk, a closed pipe.
void finish_output();
// Prints notes to standard error, one a line.
void print_notes(const std::vector<std::string>& notes);
// The text as one line: line ends become spaces.
std::string one_line(std::string text);

// Throws UsageError for the first of `options` that was given.
void reject_options(const std::set<std::string>& given, std::initializer_list<const char*> options,
                    const std::string& why);

// Returns f(). Its errors name the place in the input.
template <typename F>
auto naming_place(const std::string& place, const F& f) {
  try {
    return f();
  } catch (const Error& e) {
    fail("{}: {}", place, e.what());
  }
}

// Returns f(). Its errors become UsageErrors that name this option.
template <typename F>
auto naming_option(const std::string& option, const F& f) {
  try {
    return f();
  } catch (const Error& e) {
    throw UsageError(option + e.what());
  }
}

}  // namespace qkv
