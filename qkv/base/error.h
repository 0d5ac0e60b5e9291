// Failures that the caller can do something about. Programmer errors are assert()s instead.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace qkv {

// What a caller or a file got wrong, in one line: which op and shapes, or which file, line and field, and
// what was expected.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Wrong use of the command line or of a configuration file: the tool exits with 2 instead of 1.
class UsageError : public Error {
 public:
  using Error::Error;
};

// Throws Error with a formatted message.
[[noreturn]] void fail_formatted(fmt::string_view format, fmt::format_args args);
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  fail_formatted(format, fmt::make_format_args(args...));
}

// check(ok, "op: expected {} rows, got {}", want, got) throws Error unless ok.
template <typename... Args>
void check(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]]
    fail(format, std::forward<Args>(args)...);
}

}  // namespace qkv
