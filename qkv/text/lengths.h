// How many tokens an encoding may have, and how those of a batch become equally long: what "truncation" and
// "padding" of tokenizer.json say.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "qkv/text/post_processor.h"

namespace qkv::text {

// Which tokens a text, or a pair of texts, loses that is too long.
struct Truncation {
  enum class Strategy { kLongestFirst, kOnlyFirst, kOnlySecond };

  size_t max_length = 0;  // tokens, special ones included
  Strategy strategy = Strategy::kLongestFirst;
  // Of two texts that lose as many tokens each, which keeps an odd one: the first, as in transformers'
  // classes, or the longer (the second of equals; those beyond max_length are, as a rule), as in Hugging
  // Face's library.
  bool odd_to_longer = false;
  bool from_left = false;  // those at the beginning go, not those at the end
  size_t stride = 0;       // tokens by which windows overlap (Tokenizer::encode_windows)
};

// What is put beside texts that are too short.
struct Padding {
  std::optional<size_t> length = {};  // none: that of the batch's longest
  bool on_left = false;
  size_t multiple_of = 1;  // lengths are rounded up to these
  TokenId id = 0, type_id = 0;
  std::string token = "[PAD]";
};

// From their objects in tokenizer.json, and back.
Truncation parse_truncation(const JsonField& field);
Padding parse_padding(const JsonField& field);
nlohmann::ordered_json to_json(const Truncation& truncation);
nlohmann::ordered_json to_json(const Padding& padding);

// How many tokens one text or each of two may keep, so that these and `added` more (special ones, still to
// come) are at most max_length. kLongestFirst cuts the longer text to the shorter, then both alike. Throws
// Error where `added` alone are too many, or where a text that alone may be cut is too short for it.
std::vector<size_t> kept_lengths(const std::vector<Encoding>& texts, size_t added,
                                 const Truncation& truncation);

// Takes the other tokens. Returns whether there were any.
bool truncate(std::vector<Encoding>& texts, size_t added, const Truncation& truncation);

// All of a text in windows of `length` tokens, the first of which truncate() leaves: each goes on `stride`
// tokens before the end of the one before it, or with from_left before its beginning; the last may be
// shorter. Throws Error where a window would not go on.
std::vector<Encoding> windows_of(const Encoding& text, size_t length, const Truncation& truncation);

// The length that the encodings of a batch get.
size_t padded_length(const std::vector<Encoding>& batch, const Padding& padding);

// Fills up to `length` tokens; longer encodings stay as they are.
void pad(Encoding& encoding, size_t length, const Padding& padding);

}  // namespace qkv::text
