// Suggestions for mistyped names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace qkv {

// The candidate with the smallest edit distance to `name` (Levenshtein, with transpositions counted once);
// the first of several. Empty if none is similar: more than a third of the longer name would have to
// change.
std::string nearest(std::string_view name, std::span<const std::string_view> candidates);

// " (did you mean train.learning_rate?)", or "" if no candidate is similar. `synonyms` pairs names of other
// tools with ours. A synonym whose own name is among the candidates wins over similarity.
using Synonyms = std::span<const std::pair<std::string_view, std::string_view>>;
std::string did_you_mean(std::string_view name, std::span<const std::string_view> candidates,
                         Synonyms synonyms = {});
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates,
                         Synonyms synonyms = {});

}  // namespace qkv
