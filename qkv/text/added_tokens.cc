#include "qkv/text/added_tokens.h"

#include <algorithm>
#include <unordered_map>

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

constexpr size_t kLongestContent = 1024;  // bytes; bounds the work at each position of a text

// Beginning of the last character of text[0, end). REQUIRES: end > 0.
size_t previous_character(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return character_at(text.substr(0, end), begin).length == end - begin ? begin : end - 1;
}

bool stands_alone(std::string_view text, Range range) {
  const bool word_before =
      range.begin > 0 &&
      is_word_character(character_at(text, previous_character(text, range.begin)).codepoint);
  const bool word_after =
      range.end < text.size() && is_word_character(character_at(text, range.end).codepoint);
  return !word_before && !word_after;
}

Range with_spaces(std::string_view text, Range range, const AddedToken& token, size_t earliest) {
  while (token.lstrip && range.begin > earliest) {
    const size_t before = previous_character(text, range.begin);
    if (before < earliest || !is_space(character_at(text, before).codepoint)) break;
    range.begin = before;
  }
  while (token.rstrip && range.end < text.size()) {
    const Character after = character_at(text, range.end);
    if (!is_space(after.codepoint)) break;
    range.end += after.length;
  }
  return range;
}

}  // namespace

void StringMatcher::add(std::string_view string, size_t value) {
  if (string.empty()) return;
  if (nodes_.empty()) nodes_.push_back(kNothing);
  starts_[static_cast<unsigned char>(string[0])] = true;
  uint32_t node = 0;
  for (const char c : string) {
    const uint64_t key = static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(c);
    const auto [it, added] = edges_.emplace(key, static_cast<uint32_t>(nodes_.size()));
    if (added) nodes_.push_back(kNothing);
    node = it->second;
  }
  nodes_[node] = value;
}

StringMatcher::Match StringMatcher::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    Match longest{{begin, begin}, kNothing};
    uint32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      const auto it = edges_.find(static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(text[i]));
      if (it == edges_.end()) break;
      node = it->second;
      if (nodes_[node] != kNothing) longest = {{begin, i + 1}, nodes_[node]};
    }
    if (longest.value != kNothing) return longest;
  }
  return {{text.size(), text.size()}, kNothing};
}

namespace {

// Cleans up a list as Hugging Face's tokenizers library does. Empty tokens are dropped, repeated contents
// keep the last one's flags, and tokens of the vocabulary keep their ids.
std::vector<AddedToken> settled(std::vector<AddedToken> given, const Vocabulary& vocabulary) {
  std::vector<AddedToken> out;
  std::unordered_map<std::string, size_t> places;
  for (AddedToken& token : given) {
    if (token.content.empty()) continue;
    if (const TokenId known = vocabulary.find(token.content); known != kNoToken) token.id = known;
    const auto [at, is_new] = places.try_emplace(token.content, out.size());
    if (is_new) {
      out.push_back(std::move(token));
      continue;
    }
    token.id = out[at->second].id;
    out[at->second] = std::move(token);
  }
  return out;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary,
                         const Normalizer* normalizer, const std::string& place)
    : tokens_(settled(std::move(tokens), vocabulary)) {
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    check(token.content.size() <= kLongestContent,
          "{}: the content of token {} has {} bytes, expected at most {}", place, token.id,
          token.content.size(), kLongestContent);
    by_content_.emplace(token.content, i);
    check(by_id_.emplace(token.id, i).second, "{}: the id {} appears twice", place, token.id);
    const std::string* other = vocabulary.token(token.id);
    if (other != nullptr && *other != token.content) {
      fail("{}: \"{}\" has the id {}, which is \"{}\" in the vocabulary", place, token.content, token.id,
           *other);
    }
    if (!token.normalized) {
      raw_.add(token.content, i);
    } else if (normalizer == nullptr) {
      normalized_.add(token.content, i);
    } else {
      normalized_.add(normalizer->normalize(AlignedText(token.content, 0)).view(), i);
    }
  }
}

std::vector<AddedTokens::Segment> AddedTokens::split(std::string_view text, bool normalized) const {
  const StringMatcher& matcher = normalized ? normalized_ : raw_;
  std::vector<Segment> segments;
  size_t done = 0;
  for (size_t from = 0; !matcher.empty() && from < text.size();) {
    const auto match = matcher.find(text, from);
    if (match.range.begin == text.size()) break;
    from = match.range.end;
    const AddedToken& token = tokens_[match.value];
    if (match.range.begin < done || (token.single_word && !stands_alone(text, match.range))) continue;
    const Range range = with_spaces(text, match.range, token, done);
    if (range.begin > done) segments.push_back({{done, range.begin}, kNoToken});
    segments.push_back({range, token.id});
    done = range.end;
    from = std::max(from, done);
  }
  if (done < text.size() || segments.empty()) segments.push_back({{done, text.size()}, kNoToken});
  return segments;
}

const AddedToken* AddedTokens::find(TokenId id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

TokenId AddedTokens::find(std::string_view content) const {
  const auto it = by_content_.find(content);
  return it == by_content_.end() ? kNoToken : tokens_[it->second].id;
}

OrderedJson AddedTokens::to_json() const {
  OrderedJson list = OrderedJson::array();
  for (const AddedToken& token : tokens_) {
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  }
  return list;
}

AddedToken parse_added_token(const JsonField& field, AddedToken defaults) {
  AddedToken token = std::move(defaults);
  token.content = field["content"].string();
  token.single_word = field.boolean_or("single_word", token.single_word);
  token.lstrip = field.boolean_or("lstrip", token.lstrip);
  token.rstrip = field.boolean_or("rstrip", token.rstrip);
  token.normalized = field.boolean_or("normalized", token.normalized);
  token.special = field.boolean_or("special", token.special);
  return token;
}

std::vector<AddedToken> parse_added_tokens(const JsonField& field) {
  std::vector<AddedToken> tokens;
  const size_t count = field.size();
  for (size_t i = 0; i < count; ++i) {
    const JsonField entry = field.at(i);
    AddedToken token;
    token.id = static_cast<TokenId>(entry["id"].integer(0, kLargestTokenId));
    token.special = false;
    token.normalized = true;
    tokens.push_back(parse_added_token(entry, std::move(token)));
  }
  return tokens;
}

}  // namespace qkv::text
