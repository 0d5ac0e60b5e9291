#include "qkv/infer/vote.h"

#include <algorithm>

namespace qkv {

std::optional<std::string> extract_answer(const text::Regex& pattern, std::string_view text) {
  const auto matches = pattern.find_all(text, text::Regex::Part::first_group);
  if (matches.empty()) return std::nullopt;
  return std::string(text.substr(matches.back().begin, matches.back().size()));
}

std::vector<Vote> count_votes(const std::vector<std::optional<std::string>>& answers) {
  std::vector<Vote> votes;
  for (const auto& answer : answers) {
    if (!answer) continue;
    const auto same = [&](const Vote& v) { return v.answer == *answer; };
    auto vote = std::find_if(votes.begin(), votes.end(), same);
    if (vote == votes.end()) vote = votes.insert(votes.end(), {*answer, 0});
    ++vote->count;
  }
  std::stable_sort(votes.begin(), votes.end(),
                   [](const Vote& a, const Vote& b) { return a.count > b.count; });
  return votes;
}

}  // namespace qkv
