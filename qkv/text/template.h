// Templates of an encoder's sequences: special tokens around texts.
#pragma once

#include <string>

#include "qkv/text/tokenizer.h"

namespace qkv::text {

// Returns the tokenizer with a template that puts `first` and `last` around a text. A pair becomes first A
// last B last, with the second text of type 1 (BERT). An empty token is left out. Throws Error if the
// tokenizer lacks either token.
Tokenizer with_template(const Tokenizer& tokenizer, const std::string& first, const std::string& last);

}  // namespace qkv::text
