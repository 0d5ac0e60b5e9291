// A model of tokens and their probabilities, which cuts a piece where the product of probabilities is
// largest.
#pragma once

#include <vector>

#include "qkv/text/model.h"
#include "qkv/text/trie.h"

namespace qkv::text {

// Unigram language model (Kudo, "Subword regularization", 2018) of tokenizer.json.
class Unigram : public Model {
 public:
  explicit Unigram(const JsonField& field);

  void tokenize(const PieceList& list, std::vector<Token>& out) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  TokenId unknown() const override { return unk_; }
  nlohmann::ordered_json to_json() const override;

 private:
  void add_unknown(std::string_view text, Token token, std::vector<Token>& out) const;

  Vocabulary vocabulary_;
  std::vector<double> scores_;  // log probabilities, by id
  Trie trie_;
  TokenId unk_ = kNoToken;
  bool byte_fallback_;
  double unk_score_ = 0;
  TokenId byte_ids_[256];
};

}  // namespace qkv::text
