// The checkout that the tests were built from.
#pragma once

#include <string>

namespace qkv::testing {

std::string source_dir();

}  // namespace qkv::testing
