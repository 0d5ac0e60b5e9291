// What every output keeps to, however it is found.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace qkv {

// Lengths of the prompt and of what is written before the next token are those that the rules are asked for.
struct OutputRules {
  int64_t max_length = 0;  // prompt and output together; 0: any
  // No end before so many new tokens, and before prompt and output are as long.
  int64_t min_new_tokens = 0, min_length = 0;
  std::vector<int32_t> begin = {};      // what it begins with, of probability 1
  std::vector<int32_t> not_first = {};  // ids that are not chosen first, behind `begin`
  std::optional<int32_t> end = {};      // the last token of an output of the greatest length, likewise
  int64_t no_repeat_ngram = 0;          // no n-gram occurs twice in prompt and output; 0: any may
  std::vector<std::vector<int32_t>> suppressed = {};  // sequences that an output does not complete

  // The token that must come next; `most`: new tokens that an output may have.
  std::optional<int32_t> forced(int64_t prompt, int64_t written, int64_t most) const {
    if (end && (written + 1 == most || prompt + written + 1 == max_length)) return end;
    if (written < std::ssize(begin)) return begin[static_cast<size_t>(written)];
    return {};
  }
  // Ids that are not chosen next. `begun`: tokens of the prompt that count as new ones.
  std::vector<int32_t> refused(int64_t prompt, int64_t written, const std::vector<int32_t>& eos,
                               int64_t begun = 0) const {
    std::vector<int32_t> out;
    if (begun + written < min_new_tokens || prompt + written < min_length) out = eos;
    if (written == std::ssize(begin)) out.insert(out.end(), not_first.begin(), not_first.end());
    return out;
  }
  // Tokens that would complete an n-gram that occurred before, or a suppressed sequence. An end alone is no
  // sequence: outputs may end.
  std::vector<int32_t> completing(std::span<const int32_t> prompt, std::span<const int32_t> written,
                                  const std::vector<int32_t>& eos) const {
    std::vector<int32_t> out;
    if (no_repeat_ngram == 0 && suppressed.empty()) return out;
    std::vector<int32_t> all(prompt.begin(), prompt.end());
    all.insert(all.end(), written.begin(), written.end());
    const int64_t n = no_repeat_ngram;
    for (int64_t i = 0; n > 0 && i + n <= std::ssize(all); ++i)
      if (std::equal(all.begin() + i, all.begin() + i + n - 1, all.end() - (n - 1)))
        out.push_back(all[i + n - 1]);
    for (const std::vector<int32_t>& s : suppressed) {
      const int64_t before = std::ssize(s) - 1;
      if (before == 0 && std::ranges::find(eos, s.back()) != eos.end()) continue;
      if (before <= std::ssize(all) && std::equal(s.begin(), s.end() - 1, all.end() - before))
        out.push_back(s.back());
    }
    return out;
  }
  // Whether nothing may follow.
  bool full(int64_t prompt, int64_t written) const {
    return max_length > 0 && prompt + written >= max_length;
  }
};

}  // namespace qkv
