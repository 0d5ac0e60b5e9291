#include "qkv/text/word_piece.h"

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

constexpr size_t kMostCharacters = 1'000'000;  // upper bound of max_input_chars_per_word in a file

WordPieceOptions parse_word_piece_options(const JsonField& field) {
  WordPieceOptions options;
  options.unk_token = field.string_or("unk_token", options.unk_token);
  options.continuing_subword_prefix =
      field.string_or("continuing_subword_prefix", options.continuing_subword_prefix);
  options.max_input_chars_per_word = static_cast<size_t>(
      field.integer_or("max_input_chars_per_word", static_cast<int64_t>(options.max_input_chars_per_word), 0,
                       static_cast<int64_t>(kMostCharacters)));
  return options;
}

}  // namespace

WordPiece::WordPiece(Vocabulary vocabulary, WordPieceOptions options)
    : vocabulary_(std::move(vocabulary)),
      options_(std::move(options)),
      trie_(trie_of(vocabulary_)),
      continuing_(trie_.walk(Trie::kRoot, options_.continuing_subword_prefix)),
      unk_(vocabulary_.find(options_.unk_token)) {}

WordPiece::WordPiece(const JsonField& field)
    : WordPiece(Vocabulary(field["vocab"]), parse_word_piece_options(field)) {}

void WordPiece::tokenize(const PieceList& list, std::vector<Token>& out) const {
  out.reserve(out.size() + list.pieces.size());
  for (size_t i = 0; i < list.pieces.size(); ++i) {
    const Range range = list.pieces[i];
    const size_t first = out.size();
    const std::string spelled = list.bytes ? spell_bytes(list.piece(i)) : std::string();
    const std::string_view word = list.bytes ? spelled : list.piece(i);
    if (!tokenize_word(word, out)) {
      out.resize(first);
      check(unk_ != kNoToken, "encode: a word is not in the vocabulary, and neither is unk_token \"{}\"",
            options_.unk_token);
      out.push_back({unk_, static_cast<uint32_t>(range.begin), static_cast<uint32_t>(range.end)});
      continue;
    }
    for (size_t t = first; t < out.size(); ++t) {
      for (uint32_t* offset : {&out[t].begin, &out[t].end}) {
        if (list.bytes) *offset = static_cast<uint32_t>(count_characters(word.substr(0, *offset)));
        *offset += static_cast<uint32_t>(range.begin);
      }
    }
  }
}

// Appends the word's tokens with offsets in the word; returns false if they cannot spell it.
bool WordPiece::tokenize_word(std::string_view word, std::vector<Token>& out) const {
  if (count_characters(word) > options_.max_input_chars_per_word) return false;
  for (size_t at = 0; at < word.size();) {
    Token longest{kNoToken, static_cast<uint32_t>(at), 0};
    Trie::Node node = at == 0 ? Trie::kRoot : continuing_;
    for (size_t i = at; i < word.size() && node != Trie::kNowhere; ++i) {
      node = trie_.child(node, word[i]);
      if (node == Trie::kNowhere || trie_.value(node) == Trie::kNoValue) continue;
      longest.id = trie_.value(node);
      longest.end = static_cast<uint32_t>(i + 1);
    }
    if (longest.id == kNoToken) return false;
    out.push_back(longest);
    at = longest.end;
  }
  return true;
}

OrderedJson WordPiece::to_json() const {
  return {{"type", "WordPiece"},
          {"unk_token", options_.unk_token},
          {"continuing_subword_prefix", options_.continuing_subword_prefix},
          {"max_input_chars_per_word", options_.max_input_chars_per_word},
          {"vocab", vocabulary_.to_json()}};
}

}  // namespace qkv::text
