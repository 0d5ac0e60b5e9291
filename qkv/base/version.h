// The version of the library.
#pragma once

#include <string_view>

// The library. Tokenizers have a nested namespace.
namespace qkv {

// "MAJOR.MINOR.PATCH" of the library that is linked (semantic versioning).
std::string_view version();

}  // namespace qkv
