// Which qkv this is.
#pragma once

#include <string_view>

// The library. Tokenizers have a namespace of their own inside.
namespace qkv {

// "MAJOR.MINOR.PATCH" of the library that is linked (semantic versioning).
std::string_view version();

}  // namespace qkv
