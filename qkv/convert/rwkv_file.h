// Models of rwkv.cpp: RWKV of generation 4 or 7 in one file.
#pragma once

#include <string>
#include <string_view>

#include "qkv/convert/foreign_model.h"

namespace qkv {

// True for a file that begins as one of rwkv.cpp does.
bool is_rwkv_file(std::string_view bytes);

// Reads a model file: f32, f16, or, of version 101, blocks of 4, 5 or 8 bits, all of which become f32. A
// model of this form has no longest text, so `context` says how long its texts may be. Throws Error naming
// the file and what is wrong; the file is not trusted.
std::unique_ptr<Transformer> parse_rwkv(std::string_view bytes, const std::string& where, int64_t context);

// The same with a tokenizer: that of the file `tokenizer` (tokenizer.json), or, where it is empty, one whose
// tokens are the 256 bytes, for a vocabulary of 256.
ForeignModel read_rwkv(const std::string& path, const std::string& tokenizer, int64_t context);

}  // namespace qkv
