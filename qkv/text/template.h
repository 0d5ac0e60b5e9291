// What an encoder's sequences look like: special tokens around texts.
#pragma once

#include <string>

#include "qkv/text/tokenizer.h"

namespace qkv::text {

// The same tokenizer, which from now on puts `first` and `last` around a text, and a pair of texts together
// as first A last B last, the second text of type 1 (BERT). An empty token stands nowhere. Throws Error where
// it lacks either token.
Tokenizer with_template(const Tokenizer& tokenizer, const std::string& first, const std::string& last);

}  // namespace qkv::text
