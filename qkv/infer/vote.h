// Self-consistency (Wang et al. 2022): the majority among several sampled answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/text/regex.h"

namespace qkv {

// The answer in a text: the last match of the pattern, or the first group of that match if it has one.
std::optional<std::string> extract_answer(const text::Regex& pattern, std::string_view text);

// An answer and how many samples gave it.
struct Vote {
  std::string answer;
  int64_t count = 0;
};

// The answers with their counts, most frequent first; ties keep the order of appearance. A sample without
// an answer has no vote.
std::vector<Vote> count_votes(const std::vector<std::optional<std::string>>& answers);

}  // namespace qkv
