#include "qkv/text/trie.h"

#include <algorithm>

namespace qkv::text {

Trie::Trie(std::vector<std::pair<std::string_view, int32_t>> strings) {
  std::sort(strings.begin(), strings.end());
  // A node without children yet: the strings that pass through it, and the length of their common prefix.
  struct Pending {
    Node node;
    size_t begin, end, depth;
  };
  std::vector<Pending> queue{{kRoot, 0, strings.size(), 0}};
  nodes_.emplace_back();
  labels_.push_back(0);
  for (size_t next = 0; next < queue.size(); ++next) {
    auto [node, begin, end, depth] = queue[next];
    if (begin < end && strings[begin].first.size() == depth) nodes_[node].value = strings[begin++].second;
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char label = strings[begin].first[depth];
      size_t last = begin;
      while (last < end && strings[last].first[depth] == label) ++last;
      queue.push_back({static_cast<Node>(nodes_.size()), begin, last, depth + 1});
      nodes_.emplace_back();
      labels_.push_back(static_cast<unsigned char>(label));
      ++nodes_[node].children;
      begin = last;
    }
  }
  root_.fill(kNowhere);
  for (uint32_t i = 0; i < nodes_[kRoot].children; ++i) {
    const uint32_t at = nodes_[kRoot].first_child + i;
    root_[labels_[at]] = at;
  }
}

Trie trie_of(const Vocabulary& vocabulary) {
  std::vector<std::pair<std::string_view, int32_t>> strings;
  for (TokenId id = 0; id < static_cast<TokenId>(vocabulary.id_limit()); ++id) {
    if (const std::string* token = vocabulary.token(id)) strings.emplace_back(*token, id);
  }
  return Trie(std::move(strings));
}

}  // namespace qkv::text
