// Errors that the caller can handle. Programming errors are assert()s instead.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace qkv {

// A mistake of a caller or in a file, described in one line: the op and shapes, or the file, line and
// field, and what was expected.
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
