// The third stage: from pieces to tokens.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "qkv/text/pre_tokenizer.h"
#include "qkv/text/vocabulary.h"

namespace qkv::text {

// A token and the bytes of the piece list's text that it covers.
struct Token {
  TokenId id;
  uint32_t begin, end;
};

// Cuts pieces into tokens of a vocabulary.
class Model {
 public:
  virtual ~Model() = default;

  // Appends the tokens of all pieces. May be called from several threads at once.
  virtual void tokenize(const PieceList& list, std::vector<Token>& out) const = 0;

  virtual const Vocabulary& vocabulary() const = 0;
  virtual TokenId unknown() const = 0;  // token for text outside the vocabulary; kNoToken: none
  virtual nlohmann::ordered_json to_json() const = 0;
};

// From its object in tokenizer.json: BPE, WordPiece, Unigram, WordLevel.
std::unique_ptr<Model> parse_model(const JsonField& field);

}  // namespace qkv::text
