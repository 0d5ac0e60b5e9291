// Model directories of CTranslate2: model.bin, vocabularies and, in newer ones, config.json.
#pragma once

#include <string>

#include "qkv/convert/foreign_model.h"

namespace qkv {

// How text becomes tokens, which such a directory does not say.
enum class TokenSplit : uint8_t {
  spaces,      // tokens are separated by spaces, as in CTranslate2's own command line
  characters,  // each character is a token
};

// True if DIR/model.bin is a file of CTranslate2.
bool is_ctranslate2_dir(const std::string& dir);

// Reads an encoder-decoder. `context`: its longest text, which such a directory does not say if positions are
// computed. Weights of 8 and 16 bits become f32. Throws Error naming the file and the variable.
ForeignModel read_ctranslate2(const std::string& dir, TokenSplit split, int64_t context);

}  // namespace qkv
