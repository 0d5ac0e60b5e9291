// Patterns as a configuration writes them.
#include <sstream>

#include "qkv/base/error.h"
#include "qkv/models/spec.h"

namespace qkv {
namespace {

struct Part {
  const char* name;
  int64_t Pattern::*number;
  int64_t absent;
};
constexpr Part kParts[] = {{"window", &Pattern::window, 0},   {"dilated", &Pattern::dilation, 1},
                           {"stride", &Pattern::stride, 0},   {"global", &Pattern::global, 0},
                           {"block", &Pattern::block, 0},     {"neighbours", &Pattern::neighbours, 0},
                           {"summary", &Pattern::summary, 0}, {"random", &Pattern::random, 0},
                           {"beyond", &Pattern::beyond, 0},   {"first_block", &Pattern::first_block, 1}};

}  // namespace

Pattern pattern_from_text(const std::string& text) {
  Pattern p;
  if (text == "all") return p;
  std::istringstream in(text);
  std::string word;
  while (in >> word) {
    if (word == "ends") {
      p.ends = true;
      continue;
    }
    const Part* part = nullptr;
    std::string known;
    for (const Part& candidate : kParts) {
      if (word == candidate.name) part = &candidate;
      known += std::string(candidate.name) + ", ";
    }
    check(part != nullptr, "expected all, or some of {}ends, got '{}' in '{}'", known, word, text);
    int64_t n = 0;
    check(static_cast<bool>(in >> n) && n >= 0 && n <= int64_t{1} << 40,
          "{} needs a number from 0 to 2^40 behind it in '{}'", word, text);
    p.*part->number = n;
  }
  check(p.any(), "'{}' shows no key: it needs a window, stride, global or block, or say all", text);
  return p;
}

std::string text_of(const Pattern& p) {
  std::string text;
  for (const Part& part : kParts)
    if (p.*part.number != part.absent)
      text += fmt::format("{}{} {}", text.empty() ? "" : " ", part.name, p.*part.number);
  if (p.ends) text += " ends";
  return text.empty() ? "all" : text;
}

std::vector<std::string> texts_of(const std::vector<Pattern>& patterns) {
  std::vector<std::string> texts;
  for (const Pattern& p : patterns) texts.push_back(text_of(p));
  return texts;
}

std::vector<Pattern> patterns_from_texts(const std::vector<std::string>& texts) {
  std::vector<Pattern> patterns;
  for (const std::string& text : texts) patterns.push_back(pattern_from_text(text));
  return patterns;
}

}  // namespace qkv
