// Suggestions for mistyped names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace qkv {

// The candidate with the smallest edit distance (Levenshtein, transpositions count once) to `name`, the first
// of several; empty when none is near: more than a third of the longer name would have to change.
std::string nearest(std::string_view name, std::span<const std::string_view> candidates);

// " (did you mean train.learning_rate?)", or "" when nothing is near. `synonyms` pairs names that other tools
// use with ours; a synonym whose own name is among the candidates wins over similarity.
using Synonyms = std::span<const std::pair<std::string_view, std::string_view>>;
std::string did_you_mean(std::string_view name, std::span<const std::string_view> candidates,
                         Synonyms synonyms = {});
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates,
                         Synonyms synonyms = {});

}  // namespace qkv
