// Regular expressions of tokenizer files: Oniguruma's dialect (that of Hugging Face's tokenizers) run by
// PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::text {

// Bytes [begin, end) of a text.
struct Range {
  size_t begin;
  size_t end;
  size_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// A compiled pattern; may be used from several threads at once.
class Regex {
 public:
  // Throws Error for a pattern that does not compile. \s and \w have their Unicode meaning.
  explicit Regex(std::string pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // The matches in `text`, left to right, never overlapping. Bytes that are not UTF-8 match nothing and end
  // the text that the pattern sees. Throws Error if a match exceeds the step limits, which guard against
  // hostile patterns. With Part::first_group, returns a match's first group if it took part, else the whole
  // match.
  enum class Part { whole, first_group };
  std::vector<Range> find_all(std::string_view text, Part part = Part::whole) const;

  const std::string& pattern() const { return pattern_; }

 private:
  struct Compiled;
  void find_in_valid(std::string_view text, size_t offset, Part part, std::vector<Range>& out) const;

  std::string pattern_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace qkv::text
