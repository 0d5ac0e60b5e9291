// The most probable segmentation under a unigram model (Kudo, "Subword regularization", 2018).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "qkv/text/model.h"
#include "qkv/text/trie.h"
#include "qkv/text/unicode.h"

namespace qkv::text {

// Cuts `text` into tokens of the trie so that the sum of their scores is largest. Viterbi runs from left to
// right with sums kept as `Sum`; the first of equal paths wins. score(id, bytes) returns a token's score,
// or NaN to exclude it. A character that is no token may be `unk` at `unk_score`. Offsets are bytes of the
// text.
template <typename Sum, typename Score>
std::vector<Token> best_path(std::string_view text, const Trie& trie, const Score& score, TokenId unk,
                             Sum unk_score) {
  struct Best {
    TokenId id = kNoToken;
    Sum sum = 0;
    uint32_t begin = UINT32_MAX;
  };
  std::vector<Best> best(text.size() + 1);  // best path that ends at each byte
  const auto offer = [](Best& at, auto sum, TokenId id, size_t begin) {
    if (at.begin == UINT32_MAX || sum > at.sum)
      at = {id, static_cast<Sum>(sum), static_cast<uint32_t>(begin)};
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t length = character_at(text, begin).length;
    const Sum so_far = best[begin].sum;
    bool has_single = false;
    Trie::Node node = Trie::kRoot;
    for (size_t i = begin; i < text.size(); ++i) {
      node = trie.child(node, text[i]);
      if (node == Trie::kNowhere) break;
      const TokenId id = trie.value(node);
      if (id == Trie::kNoValue) continue;
      const auto s = score(id, i + 1 - begin);
      if (s != s) continue;
      offer(best[i + 1], s + so_far, id, begin);
      has_single |= i + 1 - begin == length;
    }
    if (!has_single) offer(best[begin + length], static_cast<Sum>(unk_score + so_far), unk, begin);
    begin += length;
  }
  std::vector<Token> path;
  for (size_t end = text.size(); end > 0; end = best[end].begin)
    path.push_back({best[end].id, best[end].begin, static_cast<uint32_t>(end)});
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace qkv::text
