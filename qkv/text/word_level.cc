#include "qkv/text/word_level.h"

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

[[noreturn]] void refuse_unknown(std::string_view piece, size_t offset, const std::string& unk_token) {
  const Character first = character_at(piece, 0);
  const std::string shown =
      piece.size() <= 40 ? std::string(piece) : std::string(piece.substr(0, 40)) + "...";
  if (piece.size() == first.length && first.valid()) {
    fail("encode: the character '{}' (U+{:04X}) at byte {} is not in the vocabulary, which has no \"{}\"",
         shown, first.codepoint, offset, unk_token);
  }
  fail("encode: '{}' at byte {} is not in the vocabulary, which has no \"{}\"", shown, offset, unk_token);
}

}  // namespace

WordLevel::WordLevel(Vocabulary vocabulary, std::string unk_token)
    : vocabulary_(std::move(vocabulary)), unk_token_(std::move(unk_token)) {}

WordLevel::WordLevel(const JsonField& field)
    : WordLevel(Vocabulary(field["vocab"]), field.string_or("unk_token", "<unk>")) {}

void WordLevel::tokenize(const PieceList& list, std::vector<Token>& out) const {
  const TokenId unk = unknown();
  out.reserve(out.size() + list.pieces.size());
  for (size_t i = 0; i < list.pieces.size(); ++i) {
    const Range range = list.pieces[i];
    const std::string_view piece = list.piece(i);
    TokenId id = list.bytes ? vocabulary_.find(spell_bytes(piece)) : vocabulary_.find(piece);
    if (id == kNoToken) id = unk;
    if (id == kNoToken) refuse_unknown(piece, list.text.source_range(range).begin, unk_token_);
    out.push_back({id, static_cast<uint32_t>(range.begin), static_cast<uint32_t>(range.end)});
  }
}

OrderedJson WordLevel::to_json() const {
  return {{"type", "WordLevel"}, {"vocab", vocabulary_.to_json()}, {"unk_token", unk_token_}};
}

}  // namespace qkv::text
