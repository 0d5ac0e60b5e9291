// A model whose tokens are whole pieces.
#pragma once

#include <string>

#include "qkv/text/model.h"

namespace qkv::text {

// One id for each piece.
class WordLevel : public Model {
 public:
  // Pieces outside the vocabulary become `unk_token`; if the vocabulary lacks it, they throw Error.
  WordLevel(Vocabulary vocabulary, std::string unk_token);
  explicit WordLevel(const JsonField& field);

  void tokenize(const PieceList& list, std::vector<Token>& out) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  TokenId unknown() const override { return vocabulary_.find(unk_token_); }
  nlohmann::ordered_json to_json() const override;

 private:
  Vocabulary vocabulary_;
  std::string unk_token_;
};

}  // namespace qkv::text
