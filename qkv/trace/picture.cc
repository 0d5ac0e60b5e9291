#include "qkv/trace/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "qkv/base/error.h"
#include "qkv/report/html.h"
#include "qkv/text/unicode.h"

namespace qkv {
namespace {

constexpr int kWidth = 960, kGap = 24, kLetter = 7, kLine = 16;  // pixels

constexpr int kSmall = 10, kLevels = 20;  // pixels of a cell; shades of small ones

constexpr const char* kStyle =
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1b1f24}"
    ".title{font-weight:600}.cell{text-anchor:middle}.row{text-anchor:end}"
    ".plus{fill:#0072b2}.minus{fill:#d55e00}.frame{fill:none;stroke:#b8bec4}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e8ea}.plus{fill:#4ba9e0}.minus{fill:#f0843c}"
    ".frame{stroke:#5a626a}}";

int width_of(const std::string& text) {
  return static_cast<int>(text::display_width(text)) * kLetter;
}

int widest(const std::vector<std::string>& texts) {
  int most = 0;
  for (const std::string& text : texts) most = std::max(most, width_of(text));
  return most;
}

// The measures of a panel.
struct PicturePlace {
  int cell_width, cell_height, left, top;  // left, top: of the cells, within the panel
  int width, height;
};

PicturePlace picture_place_of(const Panel& p) {
  const auto rows = static_cast<int>(p.values.size()),
             columns = static_cast<int>(p.values.empty() ? 0 : p.values[0].size());
  PicturePlace out{};
  int text = 0;
  for (const auto& row : p.texts) text = std::max(text, widest(row));
  const bool words = text > 0;
  out.cell_height = words || !p.rows.empty() ? std::clamp(208 / std::max(rows, 1), 13, 22)
                                             : std::clamp(240 / std::max(rows, 1), 3, 20);
  out.cell_width = words ? text + 10 : std::clamp(360 / std::max(columns, 1), 3, out.cell_height);
  const int names = widest(p.columns);
  const bool turned = names > out.cell_width - 2;  // names of columns stand upright
  out.left = p.rows.empty() ? 0 : widest(p.rows) + 8;
  out.top = kLine + 6 + (p.columns.empty() ? 0 : turned ? names + 6 : kLine);
  out.width = std::max(out.left + columns * out.cell_width, width_of(p.title));
  out.height = out.top + rows * out.cell_height;
  return out;
}

void draw(const Panel& p, const PicturePlace& at, int x, int y, std::string& out) {
  double most = p.full;
  for (const auto& row : p.values)
    for (const double v : row)
      if (std::isfinite(v) && p.full == 0) most = std::max(most, std::abs(v));
  out += fmt::format("<g transform=\"translate({},{})\"><text class=\"title\" y=\"12\">{}</text>\n", x, y,
                     escape_html(p.title));
  const auto rows = static_cast<int>(p.values.size());
  const auto columns = static_cast<int>(p.values[0].size());
  const bool turned = !p.columns.empty() && widest(p.columns) > at.cell_width - 2;
  for (size_t c = 0; c < p.columns.size(); ++c) {
    const int middle = at.left + static_cast<int>(c) * at.cell_width + at.cell_width / 2;
    out += turned ? fmt::format("<text transform=\"translate({},{}) rotate(-90)\">{}</text>\n", middle + 4,
                                at.top - 4, escape_html(p.columns[c]))
                  : fmt::format("<text class=\"cell\" x=\"{}\" y=\"{}\">{}</text>\n", middle, at.top - 5,
                                escape_html(p.columns[c]));
  }
  // Small cells, of which there are many, share a path for each shade.
  const bool small = p.texts.empty() && at.cell_width < kSmall;
  std::map<std::pair<bool, int>, std::string> shades;
  for (int r = 0; r < rows; ++r) {
    const int top = at.top + r * at.cell_height, base = top + at.cell_height / 2 + 4;
    if (!p.rows.empty())
      out += fmt::format("<text class=\"row\" x=\"{}\" y=\"{}\">{}</text>\n", at.left - 6, base,
                         escape_html(p.rows[static_cast<size_t>(r)]));
    for (int c = 0; c < columns; ++c) {
      const double v = p.values[static_cast<size_t>(r)][static_cast<size_t>(c)];
      const double share = std::isfinite(v) && most > 0 ? std::min(1.0, std::abs(v) / most) : 0;
      const int left = at.left + c * at.cell_width;
      if (small) {
        const auto level = static_cast<int>(std::lround(share * kLevels));
        if (level > 0)
          shades[{v < 0, level}] +=
              fmt::format("M{} {}h{}v{}h-{}z", left, top, at.cell_width, at.cell_height, at.cell_width);
      } else if (share >= 0.005) {
        out += fmt::format(
            "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" opacity=\"{:.2f}\"><title>{:.3g}"
            "</title></rect>\n",
            v < 0 ? "minus" : "plus", left, top, at.cell_width, at.cell_height,
            p.texts.empty() ? share : 0.6 * share, v);
      }
      if (!p.texts.empty())
        out += fmt::format("<text class=\"cell\" x=\"{}\" y=\"{}\">{}</text>\n", left + at.cell_width / 2,
                           base, escape_html(p.texts[static_cast<size_t>(r)][static_cast<size_t>(c)]));
    }
  }
  for (const auto& [shade, cells] : shades)
    out += fmt::format("<path class=\"{}\" opacity=\"{:.2f}\" d=\"{}\"/>\n", shade.first ? "minus" : "plus",
                       static_cast<double>(shade.second) / kLevels, cells);
  out += fmt::format("<rect class=\"frame\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></g>\n", at.left,
                     at.top, columns * at.cell_width, rows * at.cell_height);
}

std::vector<std::vector<double>> numbers_of(const Tensor& x, const std::vector<int64_t>& rows) {
  std::vector<std::vector<double>> out;
  for (const int64_t r : rows) {
    const auto row = x.row<float>(r);
    out.emplace_back(row.begin(), row.end());
  }
  return out;
}

}  // namespace

std::vector<Panel> panels_of(const ModelSpec& spec, const Trace& trace, const WalkLabels& labels,
                             const WalkOptions& options) {
  std::vector<Panel> out;
  const auto among = [](const std::vector<int64_t>& chosen, int64_t i) {
    return chosen.empty() || std::ranges::find(chosen, i) != chosen.end();
  };
  for (const TracedValue& value : trace.values()) {
    if (!is_chosen(spec, value, options)) continue;
    const ValueNames names = names_of(spec, value, labels);
    const auto add = [&](const std::string& title, const Tensor& x) {
      std::vector<int64_t> rows;
      for (int64_t r = 0; r < x.rows(); ++r)
        if (names.rows != labels.tokens || among(options.tokens, r)) rows.push_back(r);
      Panel p{title};
      if (value.name.ends_with("probabilities")) p.full = 1;
      for (const int64_t r : rows)
        if (!names.rows.empty()) p.rows.push_back(names.rows[static_cast<size_t>(r)]);
      if (value.name == "logits" || value.name == "probabilities") {
        for (const int64_t r : rows) {
          p.values.emplace_back();
          p.texts.emplace_back();
          for (const int64_t v : highest_places(x.row<float>(r), options.best)) {
            p.values.back().push_back(x.row<float>(r)[v]);
            p.texts.back().push_back(labels.piece ? labels.piece(v) : std::to_string(v));
          }
        }
      } else {
        p.columns = names.columns;
        p.values = numbers_of(x, rows);
        if (names.columns.empty() && options.columns > 0)
          for (auto& row : p.values) row.resize(std::min(row.size(), static_cast<size_t>(options.columns)));
      }
      if (!p.values.empty() && !p.values[0].empty()) out.push_back(std::move(p));
    };
    if (value.heads.empty()) add(value.name, value.rows);
    for (const HeadValue& head : value.heads)
      if (among(options.heads, head.head)) add(fmt::format("{}, head {}", value.name, head.head), head.value);
  }
  return out;
}

std::string draw_panels(const std::vector<Panel>& panels) {
  std::string body;
  int x = 0, y = 0, width = 0, line = 0;
  for (const Panel& p : panels) {
    check(!p.values.empty() && !p.values[0].empty(), "picture: '{}' has no numbers", p.title);
    for (const auto& row : p.values)
      check(row.size() == p.values[0].size(), "picture: rows of '{}' differ in length", p.title);
    const PicturePlace at = picture_place_of(p);
    if (x > 0 && x + at.width > kWidth) {
      x = 0;
      y += line + kGap;
      line = 0;
    }
    draw(p, at, x, y, body);
    width = std::max(width, x + at.width);
    line = std::max(line, at.height);
    x += at.width + kGap;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-2 -2 {0} {1}\" width=\"{0}\" height=\"{1}\">"
      "<style>{2}</style>\n{3}</svg>\n",
      width + 4, y + line + 4, kStyle, body);
}

}  // namespace qkv
