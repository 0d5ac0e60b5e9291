// A model of the SentencePiece library, run exactly as that library does, including normalization.
#pragma once

#include <string>
#include <vector>

#include "qkv/text/charsmap.h"
#include "qkv/text/model.h"
#include "qkv/text/sentencepiece_file.h"
#include "qkv/text/trie.h"

namespace qkv::text {

// How transformers' tokenizer classes use the library; the defaults are the library itself.
struct SentencePieceOptions {
  // Text that gets a space in front. kAsFile: each text between special tokens, if the file asks for it.
  // kFirst: only the beginning of the text (LlamaTokenizer and T5Tokenizer with legacy=false). kNone: none.
  enum class Prefix { kAsFile, kFirst, kNone };
  Prefix prefix = Prefix::kAsFile;
  // "9,": the comma becomes a token of its own (AlbertTokenizer, XLNetTokenizer).
  bool split_digit_comma = false;
  // Ids in fairseq's order (XLMRobertaTokenizer): <s>, <pad>, </s>, <unk>, then the file's from 3 on.
  bool fairseq_ids = false;
};

// Encodes whole sentences: no pre-tokenizer cuts them. tokenizer.json cannot express this model; see
// TokenizerParts::files.
class SentencePiece : public Model {
 public:
  // Throws Error naming `name` if `file` is not a model.
  SentencePiece(std::string_view file, const std::string& name, SentencePieceOptions options);

  void tokenize(const PieceList& list, std::vector<Token>& out) const override;
  const Vocabulary& vocabulary() const override { return options_.fairseq_ids ? fairseq_ : vocabulary_; }
  TokenId unknown() const override { return outer_id(unk_); }
  nlohmann::ordered_json to_json() const override;

  const SentencePieceFile& contents() const { return contents_; }

 private:
  using PieceType = SentencePieceFile::PieceType;
  static constexpr TokenId kFairseqUnknown = 3;

  // The id that callers see.
  TokenId outer_id(TokenId id) const {
    if (!options_.fairseq_ids) return id;
    return id == unk_ ? kFairseqUnknown : id + 1;
  }
  PieceType type(TokenId id) const { return contents_.pieces[static_cast<size_t>(id)].type; }
  void number_as_fairseq(const std::string& name);
  AlignedText normalize(const AlignedText& text, bool add_prefix) const;
  size_t user_defined_length(std::string_view text) const;
  void encode(const AlignedText& sentence, bool add_prefix, std::vector<Token>& out) const;
  std::vector<Token> pieces_of(std::string_view text) const;
  std::vector<Token> segment(std::string_view text) const;
  std::vector<Token> segment_unigram(std::string_view text) const;
  std::vector<Token> segment_bpe(std::string_view text) const;
  std::vector<Token> merge_sentence(std::string_view text) const;
  std::vector<Token> segment_words(std::string_view text) const;
  std::vector<Token> segment_characters(std::string_view text) const;
  void encode_after_unknown(const AlignedText& sentence, bool add_prefix, std::vector<Token>& out) const;
  std::vector<Token> split_digit_commas(std::string_view text, const std::vector<Token>& tokens) const;

  SentencePieceOptions options_;
  SentencePieceFile contents_;
  Charsmap charsmap_;
  Vocabulary vocabulary_;
  Vocabulary fairseq_;  // the same pieces with fairseq's ids
  Trie trie_;           // pieces that text may become
  Trie user_defined_;   // pieces that always match
  float min_score_, max_score_;
  size_t longest_piece_ = 0;        // bytes
  bool words_are_separate_ = true;  // no piece has a mark after another character
  TokenId unk_ = kNoToken;
  TokenId byte_ids_[256];
};

}  // namespace qkv::text
