#include "qkv/text/sentencepiece_decoder.h"

#include <algorithm>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/unicode.h"
#include "qkv/text/word_mark.h"

namespace qkv::text {
namespace {

// The text without white space at both ends.
std::string stripped(std::string_view text) {
  size_t begin = text.size(), end = 0;
  for (size_t i = 0; i < text.size();) {
    const Character c = character_at(text, i);
    if (!is_space(c.codepoint)) {
      begin = std::min(begin, i);
      end = i + c.length;
    }
    i += c.length;
  }
  return begin < end ? std::string(text.substr(begin, end - begin)) : std::string();
}

// The text with a space for every mark.
std::string with_spaces(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const size_t mark = std::min(text.find(kWordMark, i), text.size());
    result += text.substr(i, mark - i);
    if (mark < text.size()) result += ' ';
    i = mark + kWordMark.size();
  }
  return result;
}

}  // namespace

SentencePieceDecoder::SentencePieceDecoder(const SentencePieceFile& file, const Options& options)
    : style_(options.style),
      special_(options.special_tokens.begin(), options.special_tokens.end()),
      isolated_(options.isolated_tokens.begin(), options.isolated_tokens.end()),
      unk_surface_(file.unk_surface),
      byte_fallback_(file.byte_fallback),
      add_dummy_prefix_(file.add_dummy_prefix && options.style != Style::kLlama),
      remove_extra_whitespaces_(file.remove_extra_whitespaces) {
  for (const auto& [piece, score, type] : file.pieces) {
    if (type == SentencePieceFile::PieceType::kControl) control_.insert(piece);
    if (type == SentencePieceFile::PieceType::kUnknown) unk_piece_ = piece;
  }
}

OrderedJson SentencePieceDecoder::to_json() const {
  return {{"type", "SentencePiece"}};
}

void SentencePieceDecoder::decode(std::vector<std::string>& tokens) const {
  std::string text;
  if (style_ == Style::kPlain) {
    text = decode_pieces(tokens);
  } else {
    // Joins isolated tokens and the text between them; some styles put spaces between.
    std::vector<std::string> between;
    bool any = false;
    const auto append = [&](const std::string& part) {
      const bool spaced = style_ == Style::kT5 || style_ == Style::kAlbert || style_ == Style::kXlmRoberta;
      if (any && spaced) text += ' ';
      text += part;
      any = true;
    };
    const auto flush = [&](bool even_empty) {
      if (between.empty()) return;
      const std::string part = decode_around_special(between);
      between.clear();
      if (even_empty || !part.empty()) append(part);
    };
    for (std::string& token : tokens) {
      if (!isolated_.contains(token)) {
        between.push_back(std::move(token));
        continue;
      }
      flush(false);
      append(token);
    }
    flush(true);
  }
  tokens.clear();
  tokens.push_back(std::move(text));
}

std::string SentencePieceDecoder::decode_around_special(std::vector<std::string> tokens) const {
  if (style_ == Style::kXlnet || style_ == Style::kXlmRoberta) {
    std::string joined;
    for (const std::string& token : tokens) joined += token;
    return stripped(with_spaces(joined));
  }
  const bool llama = style_ == Style::kLlama || style_ == Style::kLlamaLegacy;
  const bool drops_mark = style_ != Style::kAlbert;
  if (drops_mark && !tokens.empty() && tokens[0].starts_with(kWordMark)) tokens[0].erase(0, kWordMark.size());
  std::string text;
  std::vector<std::string> between;
  bool after_special = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (special_.contains(tokens[i])) {
      const bool space = llama ? i > 0 && style_ == Style::kLlamaLegacy : true;
      if (space && !after_special) text += ' ';
      text += decode_pieces(between) + tokens[i];
      between.clear();
      after_special = true;
      continue;
    }
    if (llama && after_special && i == 1 && !tokens[i].starts_with(kWordMark)) text += ' ';
    between.push_back(tokens[i]);
    after_special = false;
  }
  text += decode_pieces(between);
  return llama ? text : stripped(text);
}

// Decodes like the library: marks become spaces, except at the start. Byte pieces become characters again,
// and each invalid byte becomes U+FFFD.
std::string SentencePieceDecoder::decode_pieces(const std::vector<std::string>& pieces) const {
  std::string text, bytes;
  bool at_start = true, start_seen = false;
  const auto flush_bytes = [&] {
    for (size_t i = 0; i < bytes.size();) {
      const Character c = character_at(bytes, i);
      if (c.valid()) {
        text.append(bytes, i, c.length);
      } else {
        text += kReplacementCharacter;
      }
      i += c.length;
    }
    bytes.clear();
  };
  for (const std::string& piece : pieces) {
    if (byte_fallback_) {
      if (const int byte = byte_of_fallback(piece); byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
    }
    flush_bytes();
    if (start_seen || !text.empty()) at_start = false;
    start_seen = false;
    if (control_.contains(piece)) continue;
    if (piece == unk_piece_) {
      text += unk_surface_;
      continue;
    }
    std::string_view rest = piece;
    if (at_start && (add_dummy_prefix_ || remove_extra_whitespaces_) && rest.starts_with(kWordMark)) {
      rest.remove_prefix(kWordMark.size());
      start_seen = !remove_extra_whitespaces_;
    }
    text += with_spaces(rest);
  }
  flush_bytes();
  return text;
}

}  // namespace qkv::text
