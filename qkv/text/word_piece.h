// A model that cuts words into the longest tokens of its vocabulary, from left to right.
#pragma once

#include <string>

#include "qkv/text/model.h"
#include "qkv/text/trie.h"

namespace qkv::text {

// The fields of tokenizer.json's WordPiece model beside vocab, with its names and defaults.
struct WordPieceOptions {
  std::string unk_token = "[UNK]";               // replaces a word that the tokens cannot spell
  std::string continuing_subword_prefix = "##";  // marks tokens that do not begin a word
  size_t max_input_chars_per_word = 100;         // longer words are unknown
};

// WordPiece (Wu et al., "Google's neural machine translation system", 2016) as BERT applies it.
class WordPiece : public Model {
 public:
  WordPiece(Vocabulary vocabulary, WordPieceOptions options);
  explicit WordPiece(const JsonField& field);

  void tokenize(const PieceList& list, std::vector<Token>& out) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  TokenId unknown() const override { return unk_; }
  nlohmann::ordered_json to_json() const override;

 private:
  bool tokenize_word(std::string_view word, std::vector<Token>& out) const;

  Vocabulary vocabulary_;
  WordPieceOptions options_;
  Trie trie_;
  Trie::Node continuing_;  // node of the prefix
  TokenId unk_;
};

}  // namespace qkv::text
