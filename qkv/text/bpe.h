// Byte-pair encoding: a piece starts as characters (or bytes). The neighbouring pair that was learned first
// is joined until no learned pair is left.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qkv/base/rng.h"
#include "qkv/text/model.h"

namespace qkv::text {

// The fields of tokenizer.json's BPE model beside vocab and merges, with its names and defaults.
struct BpeOptions {
  std::optional<std::string> unk_token;  // for characters outside the vocabulary; absent: they are dropped
  std::optional<std::string> continuing_subword_prefix;  // "##": marks characters that do not begin a piece
  std::optional<std::string> end_of_word_suffix;         // "</w>": marks the last character of a piece
  bool fuse_unk = false;                                 // one unk_token for a run of unknown characters
  bool byte_fallback = false;                            // unknown characters as <0xE4> <0xBD> ...
  bool ignore_merges = false;                            // a piece that is a token is taken whole
  double dropout = 0;  // probability of skipping a learned pair each time it comes up
};

// The tokens whose pair becomes one.
using Merge = std::pair<TokenId, TokenId>;

// Byte-pair encoding (Sennrich et al., "Neural machine translation of rare words with subword units",
// 2016).
// With dropout (Provilkov et al. 2020) the random numbers are derived from the piece and its place in the
// text. The same text therefore always has the same tokens.
class Bpe : public Model {
 public:
  // `merges` are in the order learned. Both parts and the joined token must be in the vocabulary; else
  // throws Error naming `place` and the index.
  Bpe(Vocabulary vocabulary, std::vector<Merge> merges, BpeOptions options, const std::string& place);
  explicit Bpe(const JsonField& field);
  ~Bpe() override;

  void tokenize(const PieceList& list, std::vector<Token>& out) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  TokenId unknown() const override { return unk_; }
  nlohmann::ordered_json to_json() const override;

  const std::vector<Merge>& merges() const { return merges_; }

 private:
  class MergeTable;
  class WordCache;
  class CachePool;

  void prepare(const std::string& place);
  void tokenize_word(std::string_view word, uint32_t offset, bool bytes, std::vector<Token>& out) const;
  void split(std::string_view word, uint32_t offset, bool bytes, std::vector<Token>& symbols) const;
  void add_character(std::string_view character, Token place, std::vector<Token>& symbols) const;
  void merge_short(std::vector<Token>& symbols) const;
  // `random` decides which pairs are skipped; null: none.
  void merge_long(std::vector<Token>& symbols, const RandomStream* random) const;

  Vocabulary vocabulary_;
  std::vector<Merge> merges_;
  BpeOptions options_;
  TokenId unk_ = kNoToken;
  TokenId byte_ids_[256];      // ids of the byte alphabet's characters
  TokenId fallback_ids_[256];  // ids of <0x00> ... <0xFF>
  std::unique_ptr<MergeTable> table_;
  std::unique_ptr<CachePool> caches_;
};

// The merges of tokenizer.json ("left right" or [left, right]) as pairs of ids.
std::vector<Merge> parse_merges(const JsonField& field, const Vocabulary& vocabulary);

}  // namespace qkv::text
