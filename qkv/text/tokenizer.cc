#include "qkv/text/tokenizer.h"

#include <algorithm>

#include "qkv/base/error.h"
#include "qkv/text/tokenizer_parts.h"
#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

// Tokens of a text between two added tokens, with offsets in the source.
void encode_plain(const TokenizerParts& parts, AlignedText text, std::vector<Token>& scratch, Encoding& out) {
  PieceList list(std::move(text));
  if (parts.pre_tokenizer) parts.pre_tokenizer->split(list);
  scratch.clear();
  parts.model->tokenize(list, scratch);
  const size_t before = out.size();
  out.ids.resize(before + scratch.size());
  out.offsets.resize(before + scratch.size());
  out.type_ids.resize(before + scratch.size(), 0);
  for (size_t i = 0; i < scratch.size(); ++i) {
    out.ids[before + i] = scratch[i].id;
    out.offsets[before + i] = list.text.source_range({scratch[i].begin, scratch[i].end});
  }
}

// Bytes of the U+FFFD at the end of a text that further tokens may still turn into a character. At most
// three of its four bytes are known by then.
size_t replacements_at_end(std::string_view text) {
  size_t bytes = 0;
  while (bytes < 3 * kReplacementCharacter.size() &&
         text.substr(0, text.size() - bytes).ends_with(kReplacementCharacter))
    bytes += kReplacementCharacter.size();
  return bytes;
}

// The number of bytes of a text without an incomplete last character.
size_t whole_characters(const std::string& text) {
  std::string rest = text;
  take_complete_utf8(rest);
  return text.size() - rest.size();
}

std::vector<std::string_view> texts_of(std::string_view first, std::optional<std::string_view> second) {
  return second ? std::vector{first, *second} : std::vector{first};
}

}  // namespace

Tokenizer::Tokenizer(TokenizerParts parts)
    : parts_(std::make_shared<const TokenizerParts>(std::move(parts))) {}

Encoding Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return assemble(encode_parts({text}), add_special_tokens);
}

Encoding Tokenizer::encode_pair(std::string_view first, std::string_view second,
                                bool add_special_tokens) const {
  return assemble(encode_parts({first, second}), add_special_tokens);
}

Encoding Tokenizer::encode_within(const Truncation& truncation, std::string_view first,
                                  std::optional<std::string_view> second, bool add_special_tokens,
                                  bool* cut) const {
  std::vector<Encoding> parts = encode_parts(texts_of(first, second));
  const size_t added = assemble(std::vector<Encoding>(parts.size()), add_special_tokens).size();
  const bool any = truncate(parts, added, truncation);
  if (cut != nullptr) *cut = any;
  return assemble(std::move(parts), add_special_tokens);
}

std::vector<Encoding> Tokenizer::encode_windows(const Truncation& truncation, std::string_view first,
                                                std::optional<std::string_view> second,
                                                bool add_special_tokens) const {
  const std::vector<Encoding> parts = encode_parts(texts_of(first, second));
  const size_t added = assemble(std::vector<Encoding>(parts.size()), add_special_tokens).size();
  const std::vector<size_t> lengths = kept_lengths(parts, added, truncation);
  std::vector<std::vector<Encoding>> windows;
  for (size_t i = 0; i < parts.size(); ++i) windows.push_back(windows_of(parts[i], lengths[i], truncation));
  std::vector<Encoding> out;
  if (!second) {
    for (const Encoding& window : windows[0]) out.push_back(assemble({window}, add_special_tokens));
    return out;
  }
  const auto put = [&](size_t i, size_t j) {
    out.push_back(assemble({windows[0][i], windows[1][j]}, add_special_tokens));
  };
  put(0, 0);
  for (size_t i = 1; i < windows[0].size(); ++i)
    for (size_t j = 0; j < windows[1].size(); ++j) put(i, j);
  for (size_t j = 1; j < windows[1].size(); ++j) put(0, j);
  return out;
}

const std::optional<Truncation>& Tokenizer::truncation() const {
  return parts_->truncation;
}
const std::optional<Padding>& Tokenizer::padding() const {
  return parts_->padding;
}

std::vector<Encoding> Tokenizer::encode_parts(const std::vector<std::string_view>& texts) const {
  std::vector<Encoding> parts;
  for (const std::string_view text : texts) parts.push_back(encode_part(text));
  if (parts_->post_processor) parts_->post_processor->adjust(parts, texts);
  return parts;
}

Encoding Tokenizer::assemble(std::vector<Encoding> parts, bool add_special_tokens) const {
  const PostProcessor* post = parts_->post_processor.get();
  if (add_special_tokens && post != nullptr && post->assembles()) return post->assemble(parts);
  return parts.size() == 1 ? std::move(parts[0]) : concatenate(parts);
}

Encoding Tokenizer::encode_part(std::string_view text) const {
  const bool any_bytes = parts_->pre_tokenizer && parts_->pre_tokenizer->takes_any_bytes();
  if (!any_bytes) check_utf8(text, "encode: this tokenizer takes UTF-8 only (iconv -t UTF-8 converts)");
  std::string prefixed;
  const size_t prefix = parts_->text_prefix.size();
  if (prefix > 0) {
    prefixed = parts_->text_prefix;
    prefixed += text;
    text = prefixed;
  }
  Encoding result;
  std::vector<Token> scratch;
  for (const auto& segment : parts_->added_tokens.split(text, false)) {
    if (segment.id != kNoToken) {
      result.add(segment.id, segment.range, 0);
      continue;
    }
    AlignedText part(text.substr(segment.range.begin, segment.range.size()), segment.range.begin);
    if (parts_->normalizer) part = parts_->normalizer->normalize(std::move(part));
    const auto inner = parts_->added_tokens.split(part.view(), true);
    if (inner.size() == 1 && inner[0].id == kNoToken) {
      encode_plain(*parts_, std::move(part), scratch, result);
      continue;
    }
    for (const auto& [range, id] : inner) {
      if (id != kNoToken) {
        result.add(id, part.source_range(range), 0);
      } else {
        encode_plain(*parts_, part.slice(range), scratch, result);
      }
    }
  }
  if (prefix > 0) {
    for (Range& range : result.offsets) {
      range.begin -= std::min(prefix, range.begin);
      range.end -= std::min(prefix, range.end);
    }
  }
  return result;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const TokenId id : ids) {
    const AddedToken* added = parts_->added_tokens.find(id);
    if (added != nullptr) {
      if (!skip_special_tokens || !added->special) tokens.push_back(added->content);
      continue;
    }
    const std::string* token = parts_->model->vocabulary().token(id);
    if (token == nullptr) fail("decode: {} is no token's id (the vocabulary has {})", id, vocab_size());
    tokens.push_back(*token);
  }
  std::string text;
  const bool joined_by_spaces = parts_->decoder == nullptr;
  if (!joined_by_spaces) parts_->decoder->decode(tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (joined_by_spaces && i > 0) text += ' ';
    text += tokens[i];
  }
  return text;
}

std::string Tokenizer::decode_after(std::span<const TokenId> context, std::span<const TokenId> ids,
                                    bool skip_special_tokens) const {
  std::vector<TokenId> all(context.begin(), context.end());
  all.insert(all.end(), ids.begin(), ids.end());
  std::string before = decode(context, skip_special_tokens);
  const std::string whole = decode(all, skip_special_tokens);
  before.resize(whole_characters(before));
  if (!whole.starts_with(before)) before.resize(before.size() - replacements_at_end(before));
  // New tokens may change the end of the context's text: "n" and "'t" become "n't".
  const auto [mine, theirs] = std::ranges::mismatch(before, whole);
  auto begin = static_cast<size_t>(theirs - whole.begin());
  while (begin > 0 && begin < whole.size() && (static_cast<unsigned char>(whole[begin]) & 0xC0) == 0x80)
    --begin;
  return whole.substr(begin);
}

size_t Tokenizer::vocab_size() const {
  const auto& added = parts_->added_tokens.all();
  const size_t beyond = added.empty() ? 0 : static_cast<size_t>(added.back().id) + 1;
  return std::max(parts_->model->vocabulary().id_limit(), beyond);
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const {
  TokenId id = parts_->added_tokens.find(token);
  if (id == kNoToken) id = parts_->model->vocabulary().find(token);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

std::optional<std::string> Tokenizer::id_to_token(TokenId id) const {
  if (const AddedToken* added = parts_->added_tokens.find(id)) return added->content;
  const std::string* token = parts_->model->vocabulary().token(id);
  return token == nullptr ? std::nullopt : std::optional(*token);
}

bool Tokenizer::is_special(TokenId id) const {
  const AddedToken* added = parts_->added_tokens.find(id);
  return added != nullptr && added->special;
}

TokenId Tokenizer::unknown() const {
  return parts_->model->unknown();
}

std::vector<TokenId> Tokenizer::ids_without_text(size_t limit) const {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < static_cast<TokenId>(limit); ++id)
    if (id == unknown() || !id_to_token(id)) ids.push_back(id);
  return ids;
}

StreamDecoder::StreamDecoder(Tokenizer tokenizer, bool skip_special_tokens, std::span<const TokenId> context)
    : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {
  // Keeps as few of the last tokens as have a text; special tokens have none.
  for (size_t count = std::min<size_t>(8, context.size()); !context.empty(); count = 2 * count) {
    const auto last = context.last(std::min(count, context.size()));
    begun_ = tokenizer_.decode(last, skip_special_tokens_);
    begun_.resize(whole_characters(begun_));
    shown_ = begun_.substr(0, begun_.size() - replacements_at_end(begun_));
    window_.assign(last.begin(), last.end());
    if (!shown_.empty() || count >= context.size()) break;
  }
}

std::string StreamDecoder::add(TokenId id) {
  constexpr size_t kWindow = 8, kLongestWindow = 64;  // tokens; keep the cost of each one constant
  window_.push_back(id);
  const std::string text = tokenizer_.decode(window_, skip_special_tokens_);
  const size_t held = window_.size() < kLongestWindow ? replacements_at_end(text) : 0;
  const size_t end = text.size() - held;
  if (!begun_.empty() && std::string_view(text).substr(0, end).starts_with(begun_)) shown_ = begun_;
  if (held == 0) begun_.clear();  // decided either way
  if (std::string_view(text).substr(0, end).starts_with(shown_)) {
    pending_.append(text, shown_.size(), end - shown_.size());
  } else if (held > 0) {  // bytes of a run that may yet become characters
    held_ = kReplacementCharacter;
    return "";
  } else {  // the token changed earlier text, which was already returned
    pending_ += tokenizer_.decode({&id, 1}, skip_special_tokens_);
  }
  shown_ = text.substr(0, end);
  held_ = text.substr(end);
  std::string complete = take_complete_utf8(pending_);
  // The fewest last tokens that have a text of their own are enough context for the next.
  for (size_t kept = 1; kept <= 4 && window_.size() > kWindow && held == 0; ++kept) {
    const auto last = std::span(window_).last(kept);
    std::string alone = tokenizer_.decode(last, skip_special_tokens_);
    if (alone.empty() || !text.ends_with(alone)) continue;
    window_.erase(window_.begin(), window_.end() - static_cast<std::ptrdiff_t>(kept));
    shown_ = std::move(alone);
  }
  if (window_.size() >= kLongestWindow) {
    window_.clear();
    shown_.clear();
  }
  return complete;
}

std::string StreamDecoder::finish() {
  std::string rest = pending_.empty() ? held_ : std::string(kReplacementCharacter) + held_;
  window_.clear();
  shown_.clear();
  held_.clear();
  pending_.clear();
  return rest;
}

}  // namespace qkv::text
