#include "qkv/text/bpe_trainer.h"

#include <algorithm>

#include "qkv/text/byte_alphabet.h"

namespace qkv::text {

size_t BpeTrainer::HashPair::operator()(const Merge& m) const {
  uint64_t x = static_cast<uint64_t>(static_cast<uint32_t>(m.first)) << 32 | static_cast<uint32_t>(m.second);
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
  return x ^ (x >> 29);
}

std::vector<CountedWord> spell_words(const WordCounts& words, const Vocabulary& vocabulary) {
  TokenId bytes[256];
  for (int b = 0; b < 256; ++b) {
    const auto byte = static_cast<char>(b);
    bytes[b] = vocabulary.find(spell_bytes({&byte, 1}));
  }
  std::vector<CountedWord> spelled;
  spelled.reserve(words.size());
  for (const auto& [spelling, count] : words) {
    CountedWord word{{}, count};
    word.tokens.reserve(spelling.size());
    for (const char c : spelling) word.tokens.push_back(bytes[static_cast<unsigned char>(c)]);
    spelled.push_back(std::move(word));
  }
  return spelled;
}

BpeTrainer::BpeTrainer(std::vector<CountedWord> words, Vocabulary vocabulary, std::string prefix)
    : vocabulary_(std::move(vocabulary)), prefix_(std::move(prefix)), words_(std::move(words)) {
  for (size_t w = 0; w < words_.size(); ++w) {
    const auto& [tokens, count] = words_[w];
    for (size_t i = 1; i < tokens.size(); ++i)
      change_count({tokens[i - 1], tokens[i]}, count, static_cast<uint32_t>(w));
  }
  grown_.clear();
  for (const auto& [pair, info] : pairs_) queue_.push({info.count, pair});
}

bool BpeTrainer::step(int64_t min_frequency) {
  // Queued counts may be stale, but only too high or repeated, so each is checked when it surfaces.
  while (!queue_.empty()) {
    const Candidate top = queue_.top();
    const auto it = pairs_.find(top.pair);
    const int64_t count = it == pairs_.end() ? 0 : it->second.count;
    if (count == top.count) break;
    queue_.pop();
    if (count > 0 && count < top.count) queue_.push({count, top.pair});
  }
  if (queue_.empty() || queue_.top().count < std::max<int64_t>(min_frequency, 1)) return false;
  const Merge pair = queue_.top().pair;
  queue_.pop();

  std::string_view right = *vocabulary_.token(pair.second);
  if (right.starts_with(prefix_)) right.remove_prefix(prefix_.size());
  std::string joined = *vocabulary_.token(pair.first);
  joined += right;
  TokenId id = vocabulary_.find(joined);  // another pair may already have produced the same token
  if (id == kNoToken) {
    id = static_cast<TokenId>(vocabulary_.id_limit());
    vocabulary_.add(joined, id);
  }
  merges_.push_back(pair);

  const std::vector<uint32_t> where = std::move(pairs_[pair].words);
  grown_.clear();
  for (const uint32_t word : where) merge_in_word(word, pair, id);
  pairs_.erase(pair);
  std::sort(grown_.begin(), grown_.end());
  grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
  for (const Merge& grown : grown_) {
    const auto it = pairs_.find(grown);
    if (it != pairs_.end() && it->second.count > 0) queue_.push({it->second.count, grown});
  }
  return true;
}

void BpeTrainer::change_count(Merge pair, int64_t by, uint32_t word) {
  Pair& info = pairs_[pair];
  info.count += by;
  if (by < 0) return;
  if (info.words.empty() || info.words.back() != word) info.words.push_back(word);
  if (queue_.empty() && merges_.empty()) return;  // the first count: all pairs are queued at its end
  grown_.push_back(pair);
}

void BpeTrainer::merge_in_word(uint32_t index, Merge pair, TokenId joined) {
  CountedWord& word = words_[index];
  std::vector<TokenId>& t = word.tokens;
  size_t kept = 0;  // t[0, kept) is the new word, t[i, ...) the rest of the old one
  for (size_t i = 0; i < t.size();) {
    if (i + 1 == t.size() || t[i] != pair.first || t[i + 1] != pair.second) {
      t[kept++] = t[i++];
      continue;
    }
    if (kept > 0) {
      change_count({t[kept - 1], pair.first}, -word.count, index);
      change_count({t[kept - 1], joined}, word.count, index);
    }
    if (i + 2 < t.size()) {
      change_count({pair.second, t[i + 2]}, -word.count, index);
      change_count({joined, t[i + 2]}, word.count, index);
    }
    t[kept++] = joined;
    i += 2;
  }
  t.resize(kept);
}

}  // namespace qkv::text
