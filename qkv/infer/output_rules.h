// Rules that every output follows, whether it is sampled or found by a search.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace qkv {

// Functions get the length of the prompt and the number of tokens written before the next one.
struct OutputRules {
  int64_t max_length = 0;  // maximum length of prompt and output together; 0: no limit
  // Minimum number of new tokens, and minimum length of prompt and output together, before an output may
  // end.
  int64_t min_new_tokens = 0, min_length = 0;
  std::vector<int32_t> begin = {};      // tokens that outputs begin with, forced with probability 1
  std::vector<int32_t> not_first = {};  // ids that are not chosen first after `begin`
  std::optional<int32_t> end = {};      // forced as the last token of an output of maximum length
  int64_t no_repeat_ngram = 0;  // no n-gram of this size occurs twice in prompt and output; 0: no limit
  std::vector<std::vector<int32_t>> suppressed = {};  // sequences that an output may not contain

  // The token that must come next, if any. `most`: maximum number of new tokens of an output.
  std::optional<int32_t> forced(int64_t prompt, int64_t written, int64_t most) const {
    if (end && (written + 1 == most || prompt + written + 1 == max_length)) return end;
    if (written < std::ssize(begin)) return begin[static_cast<size_t>(written)];
    return {};
  }
  // Ids that may not come next. `begun`: tokens of the prompt that count as new ones.
  std::vector<int32_t> refused(int64_t prompt, int64_t written, const std::vector<int32_t>& eos,
                               int64_t begun = 0) const {
    std::vector<int32_t> out;
    if (begun + written < min_new_tokens || prompt + written < min_length) out = eos;
    if (written == std::ssize(begin)) out.insert(out.end(), not_first.begin(), not_first.end());
    return out;
  }
  // Tokens that would complete a repeated n-gram or a suppressed sequence. A suppressed sequence that is
  // only an end token is ignored, so that outputs can end.
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
  // True if no token may follow.
  bool full(int64_t prompt, int64_t written) const {
    return max_length > 0 && prompt + written >= max_length;
  }
};

}  // namespace qkv
