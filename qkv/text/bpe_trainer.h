// The search for merges: which neighbouring pair to join next, over words and their counts.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "qkv/text/bpe.h"

namespace qkv::text {

// Words and how often they occur.
using WordCounts = std::unordered_map<std::string_view, int64_t>;

// A word as tokens of the alphabet, and how often it occurs.
struct CountedWord {
  std::vector<TokenId> tokens;
  int64_t count;
};

// Words as tokens of the byte alphabet, which `vocabulary` holds.
std::vector<CountedWord> spell_words(const WordCounts& words, const Vocabulary& vocabulary);

// Learns merges one at a time from the counts of words.
class BpeTrainer {
 public:
  // `vocabulary` holds the special tokens and the alphabet. A joined token loses the `prefix` of its right
  // part.
  BpeTrainer(std::vector<CountedWord> words, Vocabulary vocabulary, std::string prefix = "");

  // Merges the most frequent pair. False, changing nothing, when none occurs `min_frequency` times.
  bool step(int64_t min_frequency);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const std::vector<Merge>& merges() const { return merges_; }
  Vocabulary take_vocabulary() && { return std::move(vocabulary_); }

 private:
  struct Pair {
    int64_t count = 0;
    std::vector<uint32_t> words;  // that hold it, or did
  };
  struct Candidate {
    int64_t count;  // when it was queued
    Merge pair;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  struct HashPair {
    size_t operator()(const Merge& m) const;
  };

  void change_count(Merge pair, int64_t by, uint32_t word);
  void merge_in_word(uint32_t index, Merge pair, TokenId joined);

  Vocabulary vocabulary_;
  std::string prefix_;
  std::vector<Merge> merges_;
  std::vector<CountedWord> words_;
  std::unordered_map<Merge, Pair, HashPair> pairs_;
  std::vector<Merge> grown_;  // pairs whose count rose in the current step
  std::priority_queue<Candidate> queue_;
};

}  // namespace qkv::text
