#include "qkv/text/unigram.h"

#include <algorithm>

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/best_path.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

constexpr double kUnknownBelow = 10;  // below the lowest score

}  // namespace

Unigram::Unigram(const JsonField& field) : byte_fallback_(field.boolean_or("byte_fallback", false)) {
  const JsonField vocab = field["vocab"];
  if (vocab.size() > static_cast<size_t>(kLargestTokenId)) vocab.refuse("at most 10000000 tokens");
  for (size_t i = 0; i < vocab.size(); ++i) {
    const JsonField entry = vocab.at(i);
    if (entry.size() != 2) entry.refuse("[token, log probability]");
    const std::string& token = entry.at(0).string();
    check(vocabulary_.add(token, static_cast<TokenId>(i)), "{}: \"{}\" appears twice", entry.place(), token);
    scores_.push_back(entry.at(1).number());
    unk_score_ = i == 0 ? scores_[0] : std::min(unk_score_, scores_[i]);
  }
  unk_score_ -= kUnknownBelow;
  if (const auto unk = field.find("unk_id"))
    unk_ = static_cast<TokenId>(unk->integer(0, static_cast<int64_t>(scores_.size()) - 1));
  trie_ = trie_of(vocabulary_);
  for (int b = 0; b < 256; ++b) byte_ids_[b] = vocabulary_.find(fmt::format("<0x{:02X}>", b));
}

void Unigram::tokenize(const PieceList& list, std::vector<Token>& out) const {
  const auto score = [&](TokenId id, size_t) { return scores_[static_cast<size_t>(id)]; };
  for (size_t i = 0; i < list.pieces.size(); ++i) {
    const std::string spelled = list.bytes ? spell_bytes(list.piece(i)) : std::string();
    const std::string_view text = list.bytes ? spelled : list.piece(i);
    const std::vector<Token> path = best_path<double>(text, trie_, score, kNoToken, unk_score_);
    const size_t first = out.size();
    for (size_t t = 0; t < path.size(); ++t) {
      Token token = path[t];
      // The text may also match the token unk_id itself; it fuses as well.
      const auto unknown = [&](const Token& other) { return other.id == kNoToken || other.id == unk_; };
      if (!unknown(token)) {
        out.push_back(token);
        continue;
      }
      while (t + 1 < path.size() && unknown(path[t + 1])) token.end = path[++t].end;
      add_unknown(text, token, out);
    }
    for (size_t t = first; t < out.size(); ++t) {
      for (uint32_t* offset : {&out[t].begin, &out[t].end}) {
        if (list.bytes) *offset = static_cast<uint32_t>(count_characters(text.substr(0, *offset)));
        *offset += static_cast<uint32_t>(list.pieces[i].begin);
      }
    }
  }
}

// Encodes a run of unknown characters: as one token if it is one, as bytes, or as the unknown token.
void Unigram::add_unknown(std::string_view text, Token token, std::vector<Token>& out) const {
  const std::string_view run = text.substr(token.begin, token.end - token.begin);
  check(unk_ != kNoToken, "encode: '{}' is not in the vocabulary, and unk_id is not set", run.substr(0, 40));
  if (const TokenId id = vocabulary_.find(run); id != kNoToken) {
    out.push_back({id, token.begin, token.end});
    return;
  }
  const auto byte_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  const bool as_bytes =
      byte_fallback_ && std::all_of(run.begin(), run.end(), [&](char c) { return byte_id(c) != kNoToken; });
  if (!as_bytes) {
    out.push_back({unk_, token.begin, token.end});
    return;
  }
  for (uint32_t i = token.begin; i < token.end; ++i) out.push_back({byte_id(text[i]), i, i + 1});
}

OrderedJson Unigram::to_json() const {
  OrderedJson vocab = OrderedJson::array();
  for (size_t id = 0; id < scores_.size(); ++id)
    vocab.push_back(OrderedJson::array({*vocabulary_.token(static_cast<TokenId>(id)), scores_[id]}));
  return {{"type", "Unigram"},
          {"unk_id", unk_ == kNoToken ? OrderedJson(nullptr) : OrderedJson(unk_)},
          {"vocab", std::move(vocab)},
          {"byte_fallback", byte_fallback_}};
}

}  // namespace qkv::text
