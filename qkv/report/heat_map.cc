#include "qkv/report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "qkv/report/html.h"
#include "qkv/text/unicode.h"

namespace qkv {
namespace {

constexpr size_t kLongestLabel = 24;  // characters; the pointer shows the rest
constexpr double kCharacter = 6.6;    // approximate width of a character in pixels
constexpr double kAxis = 22;          // pixels for the name of an axis

// The first characters of a label.
std::string shortened(const std::string& label) {
  const std::string text = text::to_valid_utf8(label);
  size_t characters = 0;
  for (size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80 && ++characters == kLongestLabel)
      if (text.size() > i + 1) return text.substr(0, i) + "…";
  return text;
}

double width_of(const std::string& text) {
  return kCharacter * static_cast<double>(std::count_if(text.begin(), text.end(), [](char c) {
           return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
         }));
}

// The classes that occur, in their order; only the most frequent if there are too many.
std::vector<size_t> drawn_classes(size_t classes, const std::vector<int64_t>& count) {
  std::vector<double> occurs(classes);
  for (size_t g = 0; g < classes; ++g)
    for (size_t p = 0; p < classes; ++p) {
      const auto n = static_cast<double>(count[g * classes + p]);
      occurs[g] += n;
      occurs[p] += n;
    }
  std::vector<size_t> out(classes);
  std::iota(out.begin(), out.end(), size_t{0});
  std::erase_if(out, [&](size_t c) { return occurs[c] == 0; });
  if (out.size() <= kMostDrawn) return out;
  std::stable_sort(out.begin(), out.end(), [&](size_t a, size_t b) { return occurs[a] > occurs[b]; });
  out.resize(kMostDrawn);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::string draw_confusion(const std::string& title, const std::vector<std::string>& labels,
                           const std::vector<int64_t>& count) {
  const std::vector<size_t> drawn = drawn_classes(labels.size(), count);
  if (drawn.empty()) return "";
  const bool numbered = drawn.size() <= kMostNumbered;
  const auto n = static_cast<double>(drawn.size());
  // Numbers need space; many classes share the width of the page.
  const double cell = numbered ? std::clamp(620 / n, 34.0, 64.0) : std::max(8.0, 760 / n);
  const double size = cell * n, font = std::min(12.0, cell - 1);
  double longest = 0;
  for (const size_t c : drawn) longest = std::max(longest, width_of(shortened(labels[c])) * font / 12);
  const bool upright = longest <= cell - 6;  // class names fit above their columns
  const double left = kAxis + longest + 10, top = kAxis + (upright ? font : longest) + 10;
  std::string unit = "the stronger its colour, the more of its row";
  if (drawn.size() < labels.size())
    unit += drawn.size() == kMostDrawn
                ? fmt::format("; the {} most frequent of {} classes", kMostDrawn, labels.size())
                : fmt::format("; {} of {} classes occur", drawn.size(), labels.size());
  std::string out;
  const auto put = std::back_inserter(out);
  fmt::format_to(
      put,
      R"(<figure class="heat"><figcaption><span class="title">{}</span> <span class="unit">{}</span></figcaption>)",
      escape_html(title), unit);
  // Limits the width, so that few classes are not enlarged.
  fmt::format_to(
      put,
      R"(<svg viewBox="0 0 {0:.0f} {1:.0f}" style="max-width:{0:.0f}px;min-width:{2:.0f}px" role="img" aria-label="{3}">)",
      left + size + 8, top + size + 8, std::min(left + size + 8, 560.0), escape_html(title));
  fmt::format_to(put, R"(<text class="axis-name" x="{:.1f}" y="14" text-anchor="middle">predicted</text>)",
                 left + size / 2);
  fmt::format_to(
      put,
      R"svg(<text class="axis-name" transform="translate(14 {:.1f}) rotate(-90)" text-anchor="middle">true</text>)svg",
      top + size / 2);
  for (size_t i = 0; i < drawn.size(); ++i) {
    const double middle = (static_cast<double>(i) + 0.5) * cell;
    const std::string label = escape_html(shortened(labels[drawn[i]])), whole = escape_html(labels[drawn[i]]);
    fmt::format_to(
        put,
        R"(<text x="{:.1f}" y="{:.1f}" style="font-size:{:.1f}px" text-anchor="end">{}<title>{}</title></text>)",
        left - 8, top + middle + font / 3, font, label, whole);
    const std::string place =
        upright ? fmt::format(R"(x="{:.1f}" y="{:.1f}" text-anchor="middle")", left + middle, top - 8)
                : fmt::format(R"svg(transform="translate({:.1f} {:.1f}) rotate(-90)")svg",
                              left + middle + font / 3, top - 8);
    fmt::format_to(put, R"svg(<text {} style="font-size:{:.1f}px">{}<title>{}</title></text>)svg", place,
                   font, label, whole);
  }
  fmt::format_to(put, R"(<rect class="frame" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)", left,
                 top, size, size);
  for (size_t row = 0; row < drawn.size(); ++row) {
    const auto* counts = count.data() + drawn[row] * labels.size();
    const double sum = std::accumulate(counts, counts + labels.size(), 0.0);
    for (size_t column = 0; column < drawn.size(); ++column) {
      const int64_t here = counts[drawn[column]];
      if (here == 0) continue;  // most cells are empty
      const double share = static_cast<double>(here) / sum;
      const double x = left + static_cast<double>(column) * cell, y = top + static_cast<double>(row) * cell;
      fmt::format_to(
          put,
          R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill-opacity="{:.3f}"><title>{} found as {}: {} ({:.1f}% of its row)</title></rect>)",
          row == column ? "hit" : "miss", x, y, cell, cell, 0.08 + 0.92 * share,
          escape_html(labels[drawn[row]]), escape_html(labels[drawn[column]]), here, 100 * share);
      if (numbered) {
        const auto digits = static_cast<double>(std::to_string(here).size());
        fmt::format_to(
            put,
            R"(<text class="count{}" x="{:.1f}" y="{:.1f}" style="font-size:{:.1f}px" text-anchor="middle">{}</text>)",
            share > 0.5 ? " on" : "", x + cell / 2, y + cell / 2 + 4,
            std::min(13.0, 1.6 * cell / std::max(1.0, digits)), here);
      }
    }
  }
  return out + "</svg></figure>\n";
}

}  // namespace qkv
