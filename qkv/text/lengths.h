// Truncation and padding: the objects "truncation" and "padding" of tokenizer.json.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "qkv/text/post_processor.h"

namespace qkv::text {

// Which tokens are removed from a text, or from a pair of texts, that is too long.
struct Truncation {
  enum class Strategy { kLongestFirst, kOnlyFirst, kOnlySecond };

  size_t max_length = 0;  // tokens, including special ones
  Strategy strategy = Strategy::kLongestFirst;
  // When both texts are cut to the same length, the text that keeps an odd token. False: the first, as in
  // transformers' classes. True: the longer, or the second of equally long ones, as in Hugging Face's
  // library. Texts longer than max_length count as equally long.
  bool odd_to_longer = false;
  bool from_left = false;  // removes tokens at the beginning instead of the end
  size_t stride = 0;       // tokens by which windows overlap (Tokenizer::encode_windows)
};

// Padding of short texts.
struct Padding {
  std::optional<size_t> length = {};  // absent: that of the longest in the batch
  bool on_left = false;
  size_t multiple_of = 1;  // lengths are rounded up to a multiple of this
  TokenId id = 0, type_id = 0;
  std::string token = "[PAD]";
};

// Conversion from and to the objects in tokenizer.json.
Truncation parse_truncation(const JsonField& field);
Padding parse_padding(const JsonField& field);
nlohmann::ordered_json to_json(const Truncation& truncation);
nlohmann::ordered_json to_json(const Padding& padding);

// The number of tokens that one text or each of two may keep, so that these and `added` special tokens are
// at most max_length. kLongestFirst cuts the longer text down to the shorter one, then both equally. Throws
// Error if `added` exceeds max_length, or if the only text that may be cut is too short for it.
std::vector<size_t> kept_lengths(const std::vector<Encoding>& texts, size_t added,
                                 const Truncation& truncation);

// Removes the other tokens. Returns true if there were any.
bool truncate(std::vector<Encoding>& texts, size_t added, const Truncation& truncation);

// Cuts a whole text into windows of `length` tokens; the first is what truncate() keeps. Each window starts
// `stride` tokens before the end of the previous one. With from_left, windows run from the end of the text
// to its beginning. The last may be shorter. Throws Error if windows would not advance.
std::vector<Encoding> windows_of(const Encoding& text, size_t length, const Truncation& truncation);

// The length to which the encodings of a batch are padded.
size_t padded_length(const std::vector<Encoding>& batch, const Padding& padding);

// Pads to `length` tokens; longer encodings are left unchanged.
void pad(Encoding& encoding, size_t length, const Padding& padding);

}  // namespace qkv::text
