// A confusion matrix as a heat map, drawn as SVG. Colours and fonts come from the page's style sheet.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qkv {

// Maximum number of classes for which cells show their counts; with more, counts appear under the pointer.
inline constexpr size_t kMostNumbered = 20;
// Maximum number of classes drawn: the most frequent ones.
inline constexpr size_t kMostDrawn = 100;

// Draws a <figure> with a row for each true class and a column for each predicted one. A cell's colour
// shows its share of the row. count[true * labels + predicted]; classes that do not occur are not drawn.
// REQUIRES: as many counts as labels squared, none negative.
std::string draw_confusion(const std::string& title, const std::vector<std::string>& labels,
                           const std::vector<int64_t>& count);

}  // namespace qkv
