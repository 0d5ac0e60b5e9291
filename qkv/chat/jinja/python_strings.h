// Python's methods of strings, which filters, tests and methods of templates share. Characters are code
// points of UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "qkv/chat/jinja/value.h"

namespace qkv::text::jinja {

std::string lower(const std::string& s);
std::string upper(const std::string& s);
// The first character in upper case, the others in lower case. `words`: of each word.
std::string capitalized(const std::string& s, bool words);
// Without these characters, by default white space, at either end.
std::string stripped(std::string_view s, const Value& characters, bool left, bool right);
// With `to` instead of `from`, `most` times at most; -1: everywhere.
std::string replaced(const Call& c, const std::string& s, const std::string& from, const std::string& to,
                     int64_t most);
// The parts between separators, by default white space, with at most `most` splits from the left or the
// right; -1: any number. Throws Error if the separator is empty.
List split(const Call& c, const std::string& s, const Value& separator, int64_t most, bool from_right);
// True if s starts or ends with the string, or with one of the list.
bool affix(const std::string& s, const Value& what, bool start);

}  // namespace qkv::text::jinja
