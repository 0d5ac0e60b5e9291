#include "qkv/text/bpe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <queue>

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/base/rng.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

constexpr uint32_t kNoRank = UINT32_MAX;
constexpr size_t kShortWord = 48;  // symbols up to which scanning for the best pair beats a queue

uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t mix(uint64_t x) {  // the finaliser of MurmurHash3
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53u;
  return x ^ (x >> 33);
}

uint64_t hash_bytes(std::string_view s) {
  uint64_t h = 0x9E3779B97F4A7C15u * (s.size() + 1);
  size_t i = 0;
  for (uint64_t eight; i + 8 <= s.size(); i += 8) {
    std::memcpy(&eight, s.data() + i, 8);
    h = mix(h ^ eight);
  }
  uint64_t rest = 0;
  if (i < s.size()) std::memcpy(&rest, s.data() + i, s.size() - i);
  return mix(h ^ rest);
}

}  // namespace

// Pair of ids -> rank and joined token; open addressing, never more than half full.
class Bpe::MergeTable {
 public:
  struct Entry {
    uint64_t key = UINT64_MAX;
    uint32_t rank = kNoRank;
    TokenId joined = kNoToken;
  };

  explicit MergeTable(size_t merges) : entries_(std::bit_ceil(2 * merges + 2)) {}

  // False when the pair is there already.
  bool insert(TokenId left, TokenId right, uint32_t rank, TokenId joined) {
    Entry& entry = entries_[slot(pair_key(left, right))];
    if (entry.rank != kNoRank) return false;
    entry = {pair_key(left, right), rank, joined};
    return true;
  }

  // The entry of the pair, or an empty one.
  const Entry& find(TokenId left, TokenId right) const { return entries_[slot(pair_key(left, right))]; }

 private:
  size_t slot(uint64_t key) const {
    const size_t mask = entries_.size() - 1;
    size_t i = mix(key) & mask;
    while (entries_[i].rank != kNoRank && entries_[i].key != key) i = (i + 1) & mask;
    return i;
  }

  std::vector<Entry> entries_;
};

// Words and their tokens in a two-way cache with ways of one cache line: a new word displaces the older of
// two. Long words and words of many tokens are rare and are not cached.
class Bpe::WordCache {
 public:
  static constexpr size_t kLongestWord = 24, kMostTokens = 6;

  WordCache() : slots_(kSlots) {}

  // Appends the word's tokens, shifted to `offset`; returns false if the word is not cached.
  bool find(std::string_view word, uint64_t hash, uint32_t offset, std::vector<Token>& out) const {
    const size_t at = hash & (kSlots - 2);
    for (const Slot* slot : {&slots_[at], &slots_[at + 1]}) {
      if (slot->tag != tag(hash) || slot->length != word.size() ||
          std::memcmp(slot->word, word.data(), word.size()) != 0) {
        continue;
      }
      uint32_t begin = offset;
      for (size_t i = 0; i < slot->tokens; ++i) {
        const uint32_t end = offset + slot->ends[i];
        out.push_back({slot->ids[i], begin, end});
        begin = end;
      }
      return true;
    }
    return false;
  }

  // REQUIRES: word.size() <= kLongestWord and not empty.
  void insert(std::string_view word, uint64_t hash, uint32_t offset, const Token* tokens, size_t count) {
    if (count > kMostTokens) return;
    const size_t at = hash & (kSlots - 2);
    slots_[at + 1] = slots_[at];
    Slot& slot = slots_[at];
    slot.tag = tag(hash);
    slot.length = static_cast<uint8_t>(word.size());
    slot.tokens = static_cast<uint8_t>(count);
    std::memcpy(slot.word, word.data(), word.size());
    for (size_t i = 0; i < count; ++i) {
      slot.ids[i] = tokens[i].id;
      slot.ends[i] = static_cast<uint8_t>(tokens[i].end - offset);
    }
  }

 private:
  static constexpr size_t kSlots = size_t{1} << 15;  // 2 MiB
  struct alignas(64) Slot {
    uint32_t tag = 0;
    uint8_t length = 0, tokens = 0;
    uint8_t ends[kMostTokens] = {};
    TokenId ids[kMostTokens] = {};
    char word[kLongestWord] = {};
  };
  static_assert(sizeof(Slot) == 64);
  static uint32_t tag(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

  std::vector<Slot> slots_;
};

// Lends each call a cache of its own, so that threads need not share one. There are as many as calls ran at
// once.
class Bpe::CachePool {
 public:
  class Loan {
   public:
    explicit Loan(CachePool& pool) : pool_(pool), cache_(pool.take()) {}
    ~Loan() { pool_.give_back(std::move(cache_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    WordCache* operator->() { return cache_.get(); }

   private:
    CachePool& pool_;
    std::unique_ptr<WordCache> cache_;
  };

 private:
  std::unique_ptr<WordCache> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<WordCache>();
    auto cache = std::move(free_.back());
    free_.pop_back();
    return cache;
  }
  void give_back(std::unique_ptr<WordCache> cache) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(cache));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> free_;
};

namespace {

// The string that marks a character's position in the piece. Bounded, because it is added to every
// character of a text.
std::optional<std::string> parse_mark(const JsonField& field, std::string_view key) {
  const auto mark = field.find(key);
  if (!mark) return std::nullopt;
  if (mark->string().size() > 64) mark->refuse("at most 64 bytes");
  return mark->string();
}

BpeOptions parse_bpe_options(const JsonField& field) {
  BpeOptions options;
  if (const auto dropout = field.find("dropout")) {
    options.dropout = dropout->number();
    if (!(options.dropout >= 0 && options.dropout <= 1)) dropout->refuse("null, or a number from 0 to 1");
  }
  if (const auto f = field.find("unk_token")) options.unk_token = f->string();
  options.continuing_subword_prefix = parse_mark(field, "continuing_subword_prefix");
  options.end_of_word_suffix = parse_mark(field, "end_of_word_suffix");
  options.fuse_unk = field.boolean_or("fuse_unk", false);
  options.byte_fallback = field.boolean_or("byte_fallback", false);
  options.ignore_merges = field.boolean_or("ignore_merges", false);
  return options;
}

OrderedJson or_null(const std::optional<std::string>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

}  // namespace

std::vector<Merge> parse_merges(const JsonField& field, const Vocabulary& vocabulary) {
  std::vector<Merge> merges;
  const size_t count = field.size();
  merges.reserve(count);
  std::string_view parts[2];
  for (size_t i = 0; i < count; ++i) {
    const Json& merge = field.json()[i];
    if (merge.is_string()) {
      const std::string_view both = merge.get_ref<const std::string&>();
      const size_t space = both.find(' ');
      if (space == both.npos || both.find(' ', space + 1) != both.npos) {
        field.at(i).refuse("\"left right\" or [left, right]");
      }
      parts[0] = both.substr(0, space);
      parts[1] = both.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      for (size_t j = 0; j < 2; ++j) parts[j] = merge[j].get_ref<const std::string&>();
    } else {
      field.at(i).refuse("\"left right\" or [left, right]");
    }
    TokenId ids[2];
    for (size_t j = 0; j < 2; ++j) {
      ids[j] = vocabulary.find(parts[j]);
      if (ids[j] == kNoToken) fail("{}: \"{}\" is not in the vocabulary", field.at(i).place(), parts[j]);
    }
    merges.emplace_back(ids[0], ids[1]);
  }
  return merges;
}

Bpe::Bpe(const JsonField& field)
    : vocabulary_(field["vocab"]),
      merges_(parse_merges(field["merges"], vocabulary_)),
      options_(parse_bpe_options(field)) {
  prepare(field["merges"].place());
}

Bpe::Bpe(Vocabulary vocabulary, std::vector<Merge> merges, BpeOptions options, const std::string& place)
    : vocabulary_(std::move(vocabulary)), merges_(std::move(merges)), options_(std::move(options)) {
  prepare(place);
}

Bpe::~Bpe() = default;

void Bpe::prepare(const std::string& place) {
  if (options_.unk_token) unk_ = vocabulary_.find(*options_.unk_token);
  for (int b = 0; b < 256; ++b) {
    const auto byte = static_cast<char>(b);
    byte_ids_[b] = vocabulary_.find(spell_bytes({&byte, 1}));
    fallback_ids_[b] = vocabulary_.find(fmt::format("<0x{:02X}>", b));
  }
  const size_t prefix = options_.continuing_subword_prefix ? options_.continuing_subword_prefix->size() : 0;
  table_ = std::make_unique<MergeTable>(merges_.size());
  for (size_t i = 0; i < merges_.size(); ++i) {
    const auto [left, right] = merges_[i];
    const std::string &a = *vocabulary_.token(left), &b = *vocabulary_.token(right);
    const std::string joined = a + b.substr(std::min(prefix, b.size()));
    const TokenId id = vocabulary_.find(joined);
    if (id == kNoToken) {
      fail("{}[{}]: \"{}\", which \"{}\" and \"{}\" make, is not in the vocabulary", place, i, joined, a, b);
    }
    if (!table_->insert(left, right, static_cast<uint32_t>(i), id)) {
      fail("{}[{}]: \"{}\" and \"{}\" are merged twice", place, i, a, b);
    }
  }
  caches_ = std::make_unique<CachePool>();
}

void Bpe::tokenize(const PieceList& list, std::vector<Token>& out) const {
  CachePool::Loan cache(*caches_);
  const std::string_view text = list.text.view();
  out.reserve(out.size() + list.pieces.size() + list.pieces.size() / 4);
  for (const Range piece : list.pieces) {
    const std::string_view word = text.substr(piece.begin, piece.size());
    const auto offset = static_cast<uint32_t>(piece.begin);
    if (word.size() > WordCache::kLongestWord || options_.dropout > 0) {
      tokenize_word(word, offset, list.bytes, out);
      continue;
    }
    // One pipeline feeds one model, so `bytes` never changes and need not be part of the key.
    const uint64_t hash = hash_bytes(word);
    if (cache->find(word, hash, offset, out)) continue;
    const size_t before = out.size();
    tokenize_word(word, offset, list.bytes, out);
    cache->insert(word, hash, offset, out.data() + before, out.size() - before);
  }
}

void Bpe::tokenize_word(std::string_view word, uint32_t offset, bool bytes, std::vector<Token>& out) const {
  if (options_.ignore_merges && options_.dropout == 0) {
    const TokenId whole = bytes ? vocabulary_.find(spell_bytes(word)) : vocabulary_.find(word);
    if (whole != kNoToken) {
      out.push_back({whole, offset, offset + static_cast<uint32_t>(word.size())});
      return;
    }
  }
  std::vector<Token> symbols;
  symbols.reserve(word.size());
  split(word, offset, bytes, symbols);
  if (options_.dropout > 0) {
    const RandomStream random{mix(hash_bytes(word) + offset), 0, 0};
    merge_long(symbols, &random);
  } else if (symbols.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(symbols, nullptr);
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
}

void Bpe::split(std::string_view word, uint32_t offset, bool bytes, std::vector<Token>& symbols) const {
  const std::string prefix = options_.continuing_subword_prefix.value_or("");
  const std::string suffix = options_.end_of_word_suffix.value_or("");
  const bool marked = !prefix.empty() || !suffix.empty();
  for (size_t i = 0; i < word.size();) {
    const size_t length = bytes ? 1 : character_at(word, i).length;
    const Token place{kNoToken, offset + static_cast<uint32_t>(i),
                      offset + static_cast<uint32_t>(i + length)};
    const TokenId byte_id = byte_ids_[static_cast<unsigned char>(word[i])];
    if (bytes && !marked && byte_id != kNoToken) {
      symbols.push_back({byte_id, place.begin, place.end});
    } else {
      std::string character(word.substr(i, length));
      if (bytes) character = spell_bytes(character);
      if (i > 0) character.insert(0, prefix);
      if (i + length == word.size()) character += suffix;
      add_character(character, place, symbols);
    }
    i += length;
  }
}

void Bpe::add_character(std::string_view character, Token place, std::vector<Token>& symbols) const {
  const TokenId id = vocabulary_.find(character);
  if (id != kNoToken) {
    symbols.push_back({id, place.begin, place.end});
    return;
  }
  const auto fallback = [&](char c) { return fallback_ids_[static_cast<unsigned char>(c)]; };
  if (options_.byte_fallback &&
      std::all_of(character.begin(), character.end(), [&](char c) { return fallback(c) != kNoToken; })) {
    const bool one_each = character.size() == place.end - place.begin;
    for (uint32_t i = 0; i < character.size(); ++i) {
      const uint32_t begin = one_each ? place.begin + i : place.begin;
      symbols.push_back({fallback(character[i]), begin, one_each ? begin + 1 : place.end});
    }
    return;
  }
  if (!options_.unk_token) return;
  check(unk_ != kNoToken, "encode: a character is not in the vocabulary, and neither is unk_token \"{}\"",
        *options_.unk_token);
  if (options_.fuse_unk && !symbols.empty() && symbols.back().id == unk_ &&
      symbols.back().end == place.begin) {
    symbols.back().end = place.end;
  } else {
    symbols.push_back({unk_, place.begin, place.end});
  }
}

void Bpe::merge_short(std::vector<Token>& symbols) const {
  if (symbols.size() < 2) return;
  std::array<const MergeTable::Entry*, kShortWord> entries;  // pair of symbol i and the next one
  size_t pairs = symbols.size() - 1;
  for (size_t i = 0; i < pairs; ++i) entries[i] = &table_->find(symbols[i].id, symbols[i + 1].id);
  while (pairs > 0) {
    size_t best = 0;
    for (size_t i = 1; i < pairs; ++i) {
      if (entries[i]->rank < entries[best]->rank) best = i;
    }
    if (entries[best]->rank == kNoRank) break;
    symbols[best].id = entries[best]->joined;
    symbols[best].end = symbols[best + 1].end;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    std::copy(entries.begin() + best + 1, entries.begin() + pairs, entries.begin() + best);
    --pairs;
    if (best < pairs) entries[best] = &table_->find(symbols[best].id, symbols[best + 1].id);
    if (best > 0) entries[best - 1] = &table_->find(symbols[best - 1].id, symbols[best].id);
  }
}

void Bpe::merge_long(std::vector<Token>& symbols, const RandomStream* random) const {
  struct Candidate {
    uint32_t rank, left;
    uint64_t key;  // pair when it was queued; another may stand there now
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  const auto n = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> previous(n), next(n);  // a linked list; n ends it on both sides
  for (uint32_t i = 0; i < n; ++i) {
    previous[i] = i == 0 ? n : i - 1;
    next[i] = i + 1;
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](uint32_t left) {
    if (left == n || next[left] == n) return;
    const TokenId a = symbols[left].id, b = symbols[next[left]].id;
    const uint32_t rank = table_->find(a, b).rank;
    if (rank != kNoRank) queue.push({rank, left, pair_key(a, b)});
  };
  for (uint32_t i = 0; i < n; ++i) consider(i);
  std::vector<Candidate> passed;  // skipped by dropout until the next merge
  uint64_t draws = 0;
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const uint32_t left = best.left, right = next[left];
    const bool stale = symbols[left].id == kNoToken || right == n ||
                       pair_key(symbols[left].id, symbols[right].id) != best.key;
    if (stale) continue;
    if (random != nullptr && random->uniform(draws++) < options_.dropout) {
      passed.push_back(best);
      continue;
    }
    for (const Candidate& c : passed) queue.push(c);
    passed.clear();
    symbols[left].id = table_->find(symbols[left].id, symbols[right].id).joined;
    symbols[left].end = symbols[right].end;
    symbols[right].id = kNoToken;
    next[left] = next[right];
    if (next[left] != n) previous[next[left]] = left;
    consider(left);
    consider(previous[left]);
  }
  std::erase_if(symbols, [](const Token& s) { return s.id == kNoToken; });
}

OrderedJson Bpe::to_json() const {
  const auto holds_space = [&](TokenId id) { return vocabulary_.token(id)->find(' ') != std::string::npos; };
  const bool as_lists = std::any_of(merges_.begin(), merges_.end(), [&](const Merge& m) {
    return holds_space(m.first) || holds_space(m.second);
  });
  OrderedJson merges = OrderedJson::array();
  for (const auto& [left, right] : merges_) {
    const std::string &a = *vocabulary_.token(left), &b = *vocabulary_.token(right);
    merges.push_back(as_lists ? OrderedJson::array({a, b}) : OrderedJson(a + " " + b));
  }
  return {{"type", "BPE"},
          {"dropout", options_.dropout > 0 ? OrderedJson(options_.dropout) : OrderedJson(nullptr)},
          {"unk_token", or_null(options_.unk_token)},
          {"continuing_subword_prefix", or_null(options_.continuing_subword_prefix)},
          {"end_of_word_suffix", or_null(options_.end_of_word_suffix)},
          {"fuse_unk", options_.fuse_unk},
          {"byte_fallback", options_.byte_fallback},
          {"ignore_merges", options_.ignore_merges},
          {"vocab", vocabulary_.to_json()},
          {"merges", std::move(merges)}};
}

}  // namespace qkv::text
