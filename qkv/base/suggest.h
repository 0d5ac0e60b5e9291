// What a mistyped name was probably meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace qkv {

// The candidate with the smallest edit distance (Levenshtein) to `name`, the first of several.
// REQUIRES: at least one candidate.
std::string nearest(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace qkv
