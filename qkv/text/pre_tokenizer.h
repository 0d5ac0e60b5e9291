// The second stage: pre-tokenizers, which cut the text into pieces that the model sees one at a time.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "qkv/text/aligned_text.h"

namespace qkv {
class JsonField;
}

namespace qkv::text {

// A text and its pieces, in order. If `bytes` is set, every byte of the text stands for its character in
// the byte alphabet, as ByteLevel defines it. spell_out() writes out these characters for stages that need
// them.
struct PieceList {
  explicit PieceList(AlignedText whole);

  std::string_view piece(size_t i) const { return text.view().substr(pieces[i].begin, pieces[i].size()); }

  // If `bytes` is set, rewrites the text in the characters of the byte alphabet.
  void spell_out();

  AlignedText text;
  std::vector<Range> pieces;
  bool bytes = false;
};

// Cuts every piece of a list into smaller ones.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void split(PieceList& list) const = 0;
  // True if texts become bytes, so that even texts that are not UTF-8 can be encoded.
  virtual bool takes_any_bytes() const { return false; }
  virtual nlohmann::ordered_json to_json() const = 0;
};

// From its object in tokenizer.json: ByteLevel, Whitespace, WhitespaceSplit, BertPreTokenizer, Metaspace,
// Split, Digits, Punctuation, CharDelimiterSplit, UnicodeScripts, Sequence.
std::unique_ptr<PreTokenizer> parse_pre_tokenizer(const JsonField& field);

}  // namespace qkv::text
