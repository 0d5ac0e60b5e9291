// What an encoder's sequences look like: special tokens around texts, and no more tokens than a model reads.
#pragma once

#include <string>

#include "qkv/text/tokenizer.h"

namespace qkv::text {

// The same tokenizer, which from now on puts `first` and `last` around a text, and a pair of texts together
// as first A last B last, the second text of type 1 (BERT). Throws Error where it lacks either token.
Tokenizer with_template(const Tokenizer& tokenizer, const std::string& first, const std::string& last);

// Takes tokens from the end of the longer text until at most `most` are left, those that the template put
// around the texts included. Returns whether there was one too many. Throws Error where the template's alone
// are more.
bool truncate(const Tokenizer& tokenizer, Encoding& encoding, size_t most);

}  // namespace qkv::text
