// Files of CTranslate2: model.bin, a table of named variables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "qkv/tensor/tensor.h"

namespace qkv {

// The contents of a model.bin.
struct Ctranslate2File {
  std::string spec;  // the class that it describes: "TransformerSpec"
  // Weights in f32: those of 8 and 16 bits are divided by their scales, one for each row or one for all.
  std::map<std::string, Tensor> tensors;
  std::map<std::string, int64_t> settings;  // single integers: "encoder/num_heads"
};

// True for the bytes of a model.bin.
bool is_ctranslate2(std::string_view bytes);

// Parses such a file, of versions 2 to 6. The file is not trusted: every count and size is checked. Throws
// Error naming `where` and the variable.
Ctranslate2File parse_ctranslate2(std::string_view bytes, const std::string& where);

}  // namespace qkv
