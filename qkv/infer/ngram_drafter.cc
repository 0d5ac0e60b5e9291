#include "qkv/infer/ngram_drafter.h"

#include <algorithm>

namespace qkv {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int64_t kLongestMatch = 32;  // tokens beyond which matches count as equal

// The end of the best earlier occurrence of the last tokens of `text`, of which `least` match; 0: none.
int64_t find_match(const Tokens& text, int64_t least) {
  const int64_t n = std::ssize(text);
  int64_t best = 0, longest = least - 1;
  for (int64_t end = n - 1; end >= least && longest < kLongestMatch; --end) {
    int64_t match = 0;
    while (match < std::min(end, kLongestMatch) && text[end - 1 - match] == text[n - 1 - match]) ++match;
    if (match > longest) longest = match, best = end;
  }
  return best;
}

}  // namespace

std::vector<Tokens> NgramDrafter::draft(std::span<const DraftQuery> queries) {
  std::vector<Tokens> out;
  for (const DraftQuery& q : queries) {
    Tokens text;
    if (reads_source_) text = q.request->source;
    text.insert(text.end(), q.request->prompt.begin(), q.request->prompt.end());
    text.insert(text.end(), q.written.begin(), q.written.end());
    const int64_t from = find_match(text, least_), n = std::ssize(text);
    Tokens draft;
    // A draft may go on with itself, where the end of the text repeats.
    for (int64_t i = from; from > 0 && std::ssize(draft) < q.most; ++i)
      draft.push_back(i < n ? text[i] : draft[i - n]);
    out.push_back(std::move(draft));
  }
  return out;
}

}  // namespace qkv
