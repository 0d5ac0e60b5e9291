// A table of counts as a picture, drawn as SVG. Colours and fonts come from the page's style sheet.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qkv {

// Classes of which a cell holds its number; with more, cells show their numbers under the pointer.
inline constexpr size_t kMostNumbered = 20;
// Classes that are drawn: the most frequent ones.
inline constexpr size_t kMostDrawn = 100;

// What was taken for what: a <figure> with a row for each right class, a column for each found one, each cell
// coloured as strongly as its part of the row. count[right labels + found]; what occurs in neither is not
// drawn. REQUIRES: as many counts as labels squared, none negative.
std::string draw_confusion(const std::string& title, const std::vector<std::string>& labels,
                           const std::vector<int64_t>& count);

}  // namespace qkv
