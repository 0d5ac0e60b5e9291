// Which qkv this is.
#pragma once

#include <string_view>

namespace qkv {

// "MAJOR.MINOR.PATCH" of the library that is linked (semantic versioning).
std::string_view version();

}  // namespace qkv
