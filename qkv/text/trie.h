// Prefix trees over a fixed set of strings, for models that look up all tokens at a position of a text.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/text/vocabulary.h"

namespace qkv::text {

// Strings and their values as a tree of bytes. Nodes are numbers; a node's children lie side by side.
class Trie {
 public:
  using Node = uint32_t;
  static constexpr Node kRoot = 0, kNowhere = UINT32_MAX;
  static constexpr int32_t kNoValue = -1;

  // REQUIRES: no string twice, values >= 0.
  explicit Trie(std::vector<std::pair<std::string_view, int32_t>> strings);
  Trie() : Trie(std::vector<std::pair<std::string_view, int32_t>>()) {}

  // The child of `node` by `byte`, or kNowhere. REQUIRES: node != kNowhere.
  Node child(Node node, char byte) const {
    const auto label = static_cast<unsigned char>(byte);
    if (node == kRoot) return root_[label];
    const auto& [first, count, value] = nodes_[node];
    uint32_t low = first, high = first + count;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (labels_[middle] < label) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < first + count && labels_[low] == label ? low : kNowhere;
  }

  // The node that `string` leads to from `node`, or kNowhere.
  Node walk(Node node, std::string_view string) const {
    for (size_t i = 0; i < string.size() && node != kNowhere; ++i) node = child(node, string[i]);
    return node;
  }

  // The value of the string that ends at `node`, or kNoValue.
  int32_t value(Node node) const { return nodes_[node].value; }

 private:
  struct Entry {
    uint32_t first_child = 0, children = 0;
    int32_t value = kNoValue;
  };
  std::vector<Entry> nodes_;
  std::vector<unsigned char> labels_;  // the byte that leads to each node
  std::array<Node, 256> root_;         // the root has too many children to search
};

// The tokens of a vocabulary with their ids as values. The vocabulary need not outlive the call.
Trie trie_of(const Vocabulary& vocabulary);

}  // namespace qkv::text
