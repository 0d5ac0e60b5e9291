// Self-consistency (Wang et al. 2022): several samples of an answer, and what most of them say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/text/regex.h"

namespace qkv {

// The answer in a text: the pattern's last match there, or the first group of it where the pattern has one.
std::optional<std::string> extract_answer(const text::Regex& pattern, std::string_view text);

// An answer and how many samples gave it.
struct Vote {
  std::string answer;
  int64_t count = 0;
};

// The answers with their counts, the most frequent first, at ties the one that came first. A sample without
// an answer has no vote.
std::vector<Vote> count_votes(const std::vector<std::optional<std::string>>& answers);

}  // namespace qkv
