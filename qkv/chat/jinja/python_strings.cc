#include "qkv/chat/jinja/python_strings.h"

#include <algorithm>
#include <tuple>

#include "qkv/base/error.h"
#include "qkv/text/unicode.h"

namespace qkv::text::jinja {
namespace {

// Python's str.isspace() of one character.
bool is_white(std::string_view character) {
  const Character c = character_at(character, 0);
  return is_space(c.codepoint) || (c.codepoint >= 0x1C && c.codepoint <= 0x1F);
}

// Words between white space, with at most `most` splits from the left or the right. The rest keeps its
// white space.
List words(const std::string& s, int64_t most, bool from_right) {
  const std::vector<size_t> offsets = character_offsets(s);
  const auto n = std::ssize(offsets) - 1;
  const auto white = [&](int64_t i) {
    const auto at = static_cast<size_t>(from_right ? n - 1 - i : i);
    return is_white(std::string_view(s).substr(offsets[at], offsets[at + 1] - offsets[at]));
  };
  const auto part = [&](int64_t begin, int64_t end) {
    if (from_right) std::tie(begin, end) = std::pair(n - end, n - begin);
    return s.substr(offsets[static_cast<size_t>(begin)],
                    offsets[static_cast<size_t>(end)] - offsets[static_cast<size_t>(begin)]);
  };
  List out;
  for (int64_t i = 0; i < n;) {
    if (white(i)) {
      ++i;
      continue;
    }
    int64_t end = i;
    if (most >= 0 && std::ssize(out) == most)
      end = n;
    else
      while (end < n && !white(end)) ++end;
    out.emplace_back(part(i, end));
    i = end;
  }
  if (from_right) std::ranges::reverse(out);
  return out;
}

}  // namespace

std::string lower(const std::string& s) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    const Character c = character_at(s, i);
    if (c.valid()) append_lowercase(out, c.codepoint);
    i += c.length;
  }
  return out;
}

std::string upper(const std::string& s) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    const Character c = character_at(s, i);
    if (c.valid()) append_uppercase(out, c.codepoint);
    i += c.length;
  }
  return out;
}

std::string capitalized(const std::string& s, bool words) {
  std::string out;
  bool first = true;
  for (size_t i = 0; i < s.size();) {
    const Character c = character_at(s, i);
    if (c.valid() && first)
      append_uppercase(out, c.codepoint);
    else if (c.valid())
      append_lowercase(out, c.codepoint);
    first = words && class_of(c.codepoint) != CharacterClass::kLetter && c.codepoint != '\'';
    i += c.length;
  }
  return out;
}

std::string stripped(std::string_view s, const Value& characters, bool left, bool right) {
  const bool white = characters.is_undefined() || characters.is_none();
  const std::string what = white ? "" : characters.string("strip");
  const std::vector<size_t> set = character_offsets(what), offsets = character_offsets(s);
  const auto goes = [&](size_t i) {
    const std::string_view c = s.substr(offsets[i], offsets[i + 1] - offsets[i]);
    if (white) return is_white(c);
    for (size_t k = 0; k + 1 < set.size(); ++k)
      if (std::string_view(what).substr(set[k], set[k + 1] - set[k]) == c) return true;
    return false;
  };
  size_t first = 0, last = offsets.size() - 1;
  while (left && first < last && goes(first)) ++first;
  while (right && first < last && goes(last - 1)) --last;
  return std::string(s.substr(offsets[first], offsets[last] - offsets[first]));
}

std::string replaced(const Call& c, const std::string& s, const std::string& from, const std::string& to,
                     int64_t most) {
  std::string out;
  size_t at = 0;
  if (from.empty()) {  // between all characters
    const std::vector<size_t> offsets = character_offsets(s);
    for (size_t i = 0; i < offsets.size(); ++i) {
      if (most-- != 0) out += to;
      if (i + 1 < offsets.size()) out += s.substr(offsets[i], offsets[i + 1] - offsets[i]);
      c.budget.made(to.size());
    }
    return out;
  }
  for (size_t found; most-- != 0 && (found = s.find(from, at)) != s.npos; at = found + from.size()) {
    out.append(s, at, found - at);
    out += to;
    c.budget.made(to.size());
  }
  out.append(s, at);
  c.budget.made(out.size());
  return out;
}

List split(const Call& c, const std::string& s, const Value& separator, int64_t most, bool from_right) {
  List out;
  if (separator.is_undefined() || separator.is_none()) {
    out = words(s, most, from_right);
  } else {
    const std::string& by = separator.string("split");
    check(!by.empty(), "split: the separator is empty");
    size_t at = 0, end = s.size();
    if (from_right && most >= 0) {
      for (size_t found; most-- > 0 && end >= by.size() && (found = s.rfind(by, end - by.size())) != s.npos;
           end = found)
        out.emplace_back(s.substr(found + by.size(), end - found - by.size()));
      out.emplace_back(s.substr(0, end));
      std::ranges::reverse(out);
    } else {
      for (size_t found; most-- != 0 && (found = s.find(by, at)) != s.npos; at = found + by.size())
        out.emplace_back(s.substr(at, found - at));
      out.emplace_back(s.substr(at));
    }
  }
  c.budget.made(s.size() + out.size() * sizeof(Value));
  return out;
}

bool affix(const std::string& s, const Value& what, bool start) {
  const auto one = [&](const Value& v) {
    const std::string& a = v.string(start ? "startswith" : "endswith");
    return start ? s.starts_with(a) : s.ends_with(a);
  };
  return what.is_list() ? std::ranges::any_of(what.list("startswith"), one) : one(what);
}

}  // namespace qkv::text::jinja
