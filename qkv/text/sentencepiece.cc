#include "qkv/text/sentencepiece.h"

#include <cfloat>
#include <cmath>
#include <queue>
#include <unordered_map>

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/best_path.h"
#include "qkv/text/unicode.h"
#include "qkv/text/word_mark.h"

namespace qkv::text {
namespace {

constexpr float kUnknownPenalty = 10;  // below the lowest score

using Prefix = SentencePieceOptions::Prefix;

// Length of the longest string of the trie that is a prefix of the text; 0 if none is.
size_t longest_match(const Trie& trie, std::string_view text) {
  size_t longest = 0;
  Trie::Node node = Trie::kRoot;
  for (size_t i = 0; i < text.size(); ++i) {
    node = trie.child(node, text[i]);
    if (node == Trie::kNowhere) break;
    if (trie.value(node) != Trie::kNoValue) longest = i + 1;
  }
  return longest;
}

// End of the word at `begin`: the next mark that follows another character.
size_t word_end(std::string_view text, size_t begin) {
  while (text.substr(begin).starts_with(kWordMark)) begin += kWordMark.size();
  return std::min(text.find(kWordMark, begin), text.size());
}

Token token_of(TokenId id, size_t begin, size_t end) {
  return {id, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

}  // namespace

SentencePiece::SentencePiece(std::string_view file, const std::string& name, SentencePieceOptions options)
    : options_(options),
      contents_(parse_sentencepiece(file, name)),
      charsmap_(contents_.precompiled_charsmap, name),
      min_score_(FLT_MAX),
      max_score_(FLT_MIN) {  // the library's lower bound
  std::vector<std::pair<std::string_view, int32_t>> normal, user_defined;
  for (size_t i = 0; i < contents_.pieces.size(); ++i) {
    const auto& [piece, score, type] = contents_.pieces[i];
    const auto id = static_cast<TokenId>(i);
    vocabulary_.add(piece, id);
    longest_piece_ = std::max(longest_piece_, piece.size());
    words_are_separate_ &= word_end(piece, 0) == piece.size();
    if (type == PieceType::kUnknown) unk_ = id;
    if (type == PieceType::kUserDefined) user_defined.emplace_back(piece, id);
    if (type == PieceType::kNormal) {
      min_score_ = std::min(min_score_, score);
      max_score_ = std::max(max_score_, score);
    }
    if (type == PieceType::kNormal || type == PieceType::kUserDefined || type == PieceType::kUnused)
      normal.emplace_back(piece, id);
  }
  trie_ = Trie(std::move(normal));
  user_defined_ = Trie(std::move(user_defined));
  for (int b = 0; b < 256; ++b) {
    byte_ids_[b] = vocabulary_.find(fmt::format("<0x{:02X}>", b));
    check(!contents_.byte_fallback || byte_ids_[b] != kNoToken, "{}: no piece for the byte {:02X}", name, b);
  }
  if (options_.fairseq_ids) number_as_fairseq(name);
}

void SentencePiece::number_as_fairseq(const std::string& name) {
  const char* const expected[] = {"<unk>", "<s>", "</s>"};
  for (size_t i = 0; i < 3; ++i) {
    check(i < contents_.pieces.size() && contents_.pieces[i].piece == expected[i],
          "{}: piece {} is not {}, as fairseq's numbering has it", name, i, expected[i]);
  }
  TokenId id = 0;
  for (const char* token : {"<s>", "<pad>", "</s>", "<unk>"}) fairseq_.add(token, id++);
  for (size_t i = 3; i < contents_.pieces.size(); ++i) fairseq_.add(contents_.pieces[i].piece, id++);
}

OrderedJson SentencePiece::to_json() const {
  return {{"type", "SentencePiece"}};
}

void SentencePiece::tokenize(const PieceList& list, std::vector<Token>& out) const {
  check(!list.bytes, "encode: a SentencePiece model takes text, no ByteLevel pieces");
  for (size_t i = 0; i < list.pieces.size(); ++i) {
    const size_t begin = list.pieces[i].begin;
    const AlignedText sentence(list.piece(i), begin);
    const std::string_view text = sentence.view();
    if (options_.prefix == Prefix::kAsFile) {
      encode(sentence, contents_.add_dummy_prefix, out);
      continue;
    }
    const bool first =
        options_.prefix == Prefix::kFirst && list.text.source_range({begin, begin + 1}).begin == 0;
    if (first || text.starts_with(' ') || text.starts_with(kWordMark)) {
      encode_after_unknown(sentence, first, out);
    } else {
      encode(sentence, false, out);
    }
  }
}

// Appends a sentence's tokens, with offsets in the text that contains the sentence.
void SentencePiece::encode(const AlignedText& sentence, bool add_prefix, std::vector<Token>& out) const {
  const AlignedText normal = normalize(sentence, add_prefix);
  std::vector<Token> tokens = pieces_of(normal.view());
  if (options_.split_digit_comma) tokens = split_digit_commas(normal.view(), tokens);
  for (const auto& [id, begin, end] : tokens) {
    const Range source = normal.source_range({begin, end});
    out.push_back(token_of(outer_id(id), source.begin, source.end));
  }
}

// Encodes the sentence after the unknown piece, so that a space at its start survives, then drops the
// tokens of that piece.
void SentencePiece::encode_after_unknown(const AlignedText& sentence, bool add_prefix,
                                         std::vector<Token>& out) const {
  const std::string& unknown = *vocabulary_.token(unk_);
  Rewriter with_unknown(sentence);
  with_unknown.replace({0, 0}, add_prefix ? unknown + std::string(kWordMark) : unknown);
  with_unknown.keep({0, sentence.view().size()});
  std::vector<Token> alone, tokens;
  encode(AlignedText(unknown, 0), false, alone);
  encode(std::move(with_unknown).finish(), false, tokens);
  const size_t dropped = tokens.size() >= alone.size() ? alone.size() : 0;
  out.insert(out.end(), tokens.begin() + static_cast<std::ptrdiff_t>(dropped), tokens.end());
}

size_t SentencePiece::user_defined_length(std::string_view text) const {
  return longest_match(user_defined_, text);
}

// Does what the library's Normalizer does. User-defined pieces stay unchanged.
AlignedText SentencePiece::normalize(const AlignedText& text, bool add_prefix) const {
  const std::string_view in = text.view();
  const std::string_view space = contents_.escape_whitespaces ? kWordMark : " ";
  const bool single = contents_.remove_extra_whitespaces;
  const auto rule_at = [&](size_t i) -> Charsmap::Rule {
    const std::string_view rest = in.substr(i);
    if (const size_t length = user_defined_length(rest)) return {length, rest.substr(0, length)};
    if (const auto rule = charsmap_.longest(rest)) return *rule;
    const size_t length = character_at(in, i).length;
    return {length, rest.substr(0, length)};
  };
  Rewriter out(text);
  size_t i = 0;
  while (single && i < in.size()) {
    const auto [length, by] = rule_at(i);
    if (by != " ") break;
    i += length;
  }
  if (i > 0) out.replace({0, i}, "");
  if (i == in.size()) return std::move(out).finish();
  const bool prefix = add_prefix && !contents_.treat_whitespace_as_suffix;
  if (prefix) out.replace({i, i}, space);
  bool after_space = single;
  std::string escaped;
  while (i < in.size()) {
    auto [length, by] = rule_at(i);
    while (after_space && by.starts_with(' ')) by.remove_prefix(1);
    if (!by.empty()) after_space = single && by.ends_with(' ');
    escaped.clear();
    for (const char c : by) {
      if (c == ' ') {
        escaped += space;
      } else {
        escaped += c;
      }
    }
    if (escaped == in.substr(i, length)) {
      out.keep({i, i + length});
    } else {
      out.replace({i, i + length}, escaped);
    }
    i += length;
  }
  while (single && out.drop_end(space)) {
  }
  if (add_prefix && contents_.treat_whitespace_as_suffix) out.replace({in.size(), in.size()}, space);
  return std::move(out).finish();
}

// Segments the text, then turns each run of unknown pieces into one, or into bytes.
std::vector<Token> SentencePiece::pieces_of(std::string_view text) const {
  std::vector<Token> pieces;
  for (const Token& token : segment(text)) {
    if (token.id == unk_ && contents_.byte_fallback) {
      for (uint32_t i = token.begin; i < token.end; ++i)
        pieces.push_back({byte_ids_[static_cast<unsigned char>(text[i])], i, i + 1});
    } else if (token.id == unk_ && !pieces.empty() && pieces.back().id == unk_) {
      pieces.back().end = token.end;
    } else {
      pieces.push_back(token);
    }
  }
  return pieces;
}

std::vector<Token> SentencePiece::segment(std::string_view text) const {
  switch (contents_.model_type) {
    case SentencePieceFile::ModelType::kUnigram:
      return segment_unigram(text);
    case SentencePieceFile::ModelType::kBpe:
      return segment_bpe(text);
    case SentencePieceFile::ModelType::kWord:
      return segment_words(text);
    case SentencePieceFile::ModelType::kChar:
      return segment_characters(text);
  }
  return {};
}

std::vector<Token> SentencePiece::segment_unigram(std::string_view text) const {
  // User-defined pieces beat all others that cover their bytes. The expression is in double and the sums
  // are in float, as in the library.
  const auto score = [&](TokenId id, size_t length) -> double {
    const PieceType t = type(id);
    if (t == PieceType::kUnused) return std::nan("");
    if (t == PieceType::kUserDefined) return static_cast<float>(length) * max_score_ - 0.1;
    return contents_.pieces[static_cast<size_t>(id)].score;
  };
  return best_path<float>(text, trie_, score, unk_, min_score_ - kUnknownPenalty);
}

// If no piece spans words, each word is encoded on its own: faster, with the same tokens.
std::vector<Token> SentencePiece::segment_bpe(std::string_view text) const {
  if (!words_are_separate_) return merge_sentence(text);
  std::vector<Token> tokens;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = word_end(text, begin);
    for (const auto& [id, from, to] : merge_sentence(text.substr(begin, end - begin)))
      tokens.push_back(token_of(id, begin + from, begin + to));
    begin = end;
  }
  return tokens;
}

// Joins the neighbours whose piece has the highest score, the leftmost of equals, until no pair is a piece.
// Unused pieces take part and are split again at the end.
std::vector<Token> SentencePiece::merge_sentence(std::string_view text) const {
  struct Symbol {
    size_t begin, length;
    int previous, next;
    bool frozen;
  };
  struct Pair {
    int left, right;
    float score;
    size_t length;
    bool operator<(const Pair& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  std::vector<Symbol> symbols;
  for (size_t i = 0; i < text.size();) {
    const size_t whole = user_defined_length(text.substr(i));
    const size_t length = whole > 0 ? whole : character_at(text, i).length;
    const auto index = static_cast<int>(symbols.size());
    symbols.push_back({i, length, index - 1, index + 1, whole > 0});
    i += length;
  }
  if (symbols.empty()) return {};
  symbols.back().next = -1;
  const auto piece = [&](const Symbol& s) { return text.substr(s.begin, s.length); };

  std::priority_queue<Pair> queue;
  using Halves = std::pair<std::string_view, std::string_view>;
  std::unordered_map<std::string_view, Halves> halves;  // parts of unused pieces
  const auto consider = [&](int left, int right) {
    if (left < 0 || right < 0) return;
    const Symbol &l = symbols[static_cast<size_t>(left)], &r = symbols[static_cast<size_t>(right)];
    if (l.frozen || r.frozen || l.length + r.length > longest_piece_) return;
    const std::string_view joined = text.substr(l.begin, l.length + r.length);
    const TokenId id = vocabulary_.find(joined);
    if (id == kNoToken) return;
    const PieceType t = type(id);
    if (t != PieceType::kNormal && t != PieceType::kUserDefined && t != PieceType::kUnused) return;
    queue.push({left, right, contents_.pieces[static_cast<size_t>(id)].score, joined.size()});
    if (t == PieceType::kUnused) halves[joined] = {piece(l), piece(r)};
  };
  for (size_t i = 1; i < symbols.size(); ++i) consider(static_cast<int>(i) - 1, static_cast<int>(i));
  while (!queue.empty()) {
    const Pair top = queue.top();
    queue.pop();
    Symbol &left = symbols[static_cast<size_t>(top.left)], &right = symbols[static_cast<size_t>(top.right)];
    if (left.length == 0 || right.length == 0 || left.length + right.length != top.length) continue;
    left.length += right.length;
    left.next = right.next;
    if (right.next >= 0) symbols[static_cast<size_t>(right.next)].previous = top.left;
    right.length = 0;
    consider(left.previous, top.left);
    consider(top.left, left.next);
  }

  std::vector<Token> tokens;
  std::vector<std::string_view> pending;
  for (int index = 0; index >= 0; index = symbols[static_cast<size_t>(index)].next) {
    pending.push_back(piece(symbols[static_cast<size_t>(index)]));
    while (!pending.empty()) {
      const std::string_view part = pending.back();
      pending.pop_back();
      const TokenId id = vocabulary_.find(part);
      if (id != kNoToken && type(id) == PieceType::kUnused) {
        if (const auto it = halves.find(part); it != halves.end()) {
          pending.push_back(it->second.second);
          pending.push_back(it->second.first);
          continue;
        }
      }
      const auto begin = static_cast<size_t>(part.data() - text.data());
      tokens.push_back(token_of(id == kNoToken ? unk_ : id, begin, begin + part.size()));
    }
  }
  return tokens;
}

// Each space begins a word.
std::vector<Token> SentencePiece::segment_words(std::string_view text) const {
  std::vector<Token> tokens;
  for (size_t begin = 0; begin < text.size();) {
    const size_t next = text.find(kWordMark, begin + 1), end = next == text.npos ? text.size() : next;
    const TokenId id = vocabulary_.find(text.substr(begin, end - begin));
    tokens.push_back(token_of(id == kNoToken ? unk_ : id, begin, end));
    begin = end;
  }
  return tokens;
}

std::vector<Token> SentencePiece::segment_characters(std::string_view text) const {
  std::vector<Token> tokens;
  for (size_t begin = 0; begin < text.size();) {
    const size_t whole = user_defined_length(text.substr(begin));
    const size_t end = begin + (whole > 0 ? whole : character_at(text, begin).length);
    const TokenId id = vocabulary_.find(text.substr(begin, end - begin));
    tokens.push_back(token_of(id == kNoToken ? unk_ : id, begin, end));
    begin = end;
  }
  return tokens;
}

// AlbertTokenizer's rule: a piece that ends in a digit and a comma is segmented again without the comma.
std::vector<Token> SentencePiece::split_digit_commas(std::string_view text,
                                                     const std::vector<Token>& tokens) const {
  const TokenId comma = vocabulary_.find(",");
  std::vector<Token> result;
  for (const Token& token : tokens) {
    const std::string_view piece = text.substr(token.begin, token.end - token.begin);
    size_t last = piece.size() - 1;  // beginning of the character before the comma
    while (last > 0 && (static_cast<unsigned char>(piece[--last]) & 0xC0) == 0x80) {
    }
    if (!piece.ends_with(',') || piece.size() < 2 || !is_decimal_digit(character_at(piece, last).codepoint)) {
      result.push_back(token);
      continue;
    }
    std::string digits(piece.substr(0, piece.size() - 1));
    for (size_t at; (at = digits.find(kWordMark)) != digits.npos;) digits.erase(at, kWordMark.size());
    const AlignedText normal = normalize(AlignedText(digits, 0), contents_.add_dummy_prefix);
    const size_t first = result.size();
    for (const Token& part : pieces_of(normal.view())) {
      const std::string_view spelling = normal.view().substr(part.begin, part.end - part.begin);
      TokenId id = part.id;
      if (result.size() == first && !piece.starts_with(kWordMark) && spelling.starts_with(kWordMark) &&
          part.begin == 0) {
        if (spelling.size() == kWordMark.size()) continue;
        id = vocabulary_.find(spelling.substr(kWordMark.size()));
      }
      result.push_back({id == kNoToken ? unk_ : id, token.begin, token.end - 1});
    }
    result.push_back({comma == kNoToken ? unk_ : comma, token.end - 1, token.end});
  }
  return result;
}

}  // namespace qkv::text
