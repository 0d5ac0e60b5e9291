#include "qkv/trace/walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "qkv/text/unicode.h"
#include "qkv/trace/step.h"

namespace qkv {
namespace {

constexpr size_t kLongestLabel = 12;  // columns of a token's label
constexpr int64_t kMostNamed = 16;    // columns of a matrix whose columns are tokens

// The text cut and padded to so many columns.
std::string fitted(std::string text, size_t columns, bool right = false) {
  while (text::display_width(text) > columns) {
    while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.pop_back();
    if (!text.empty()) text.pop_back();
  }
  const std::string space(columns - text::display_width(text), ' ');
  return right ? space + text : text + space;
}

// True if a value's rows are the last stack's tokens; else they are the source's.
bool rows_are_tokens(const ModelSpec& spec, const TracedValue& value) {
  const bool of_encoder =
      spec.architecture == Architecture::encoder_decoder && step_of(spec, value.name).stack == "encoder";
  return !of_encoder && !value.name.ends_with(".cross_attention.keys") &&
         !value.name.ends_with(".cross_attention.values");
}

class Walk {
 public:
  Walk(const ModelSpec& spec, const WalkLabels& labels, const WalkOptions& options)
      : spec_(spec), labels_(labels), options_(options) {}

  void add(const TracedValue& value) {
    const Step step = step_of(spec_, value.name);
    of_tokens_ = rows_are_tokens(spec_, value);
    const std::string place = step.layer < 0 ? "" : fmt::format("{} block {}", step.stack, step.layer);
    if (place != place_ && !place.empty())
      out_ += fmt::format(
          "\n== {}, from 0 to {}\n", place,
          (step.stack == "encoder" && spec_.encoder_layers > 0 ? spec_.encoder_layers : spec_.layers) - 1);
    place_ = place;
    out_ += fmt::format("\n{}{}{}\n", step.words, step.formula.empty() ? "" : ":  " + step.formula,
                        step.where.empty() ? "" : "  (" + step.where + ")");
    if (!value.heads.empty()) {
      add_heads(value);
    } else if (value.name == "probabilities" || value.name == "logits") {
      add_best(value);
    } else {
      out_ += fmt::format("  {}  [{} x {}]\n", value.name, value.rows.rows(), value.rows.width());
      const ValueNames names = names_of(spec_, value, labels_);
      add_matrix(value.rows, names.rows, names.columns);
    }
  }
  std::string text() const { return out_; }

 private:
  using Names = std::vector<std::string>;

  bool shows_row(int64_t row) const {
    if (options_.tokens.empty() || !of_tokens_) return true;
    return std::ranges::find(options_.tokens, row) != options_.tokens.end();
  }

  std::string cell(double x, double most) const {
    if (std::isinf(x)) return options_.heat ? " ·" : "·";
    if (!options_.heat) return fmt::format("{:.{}f}", x, options_.precision);
    static constexpr const char* kShades[] = {" ", "░", "▒", "▓", "█"};
    const double share = most > 0 ? std::abs(x) / most : 0;
    const auto shade = static_cast<size_t>(std::min(4.0, std::ceil(share * 5 - 0.5)));
    return fmt::format("{}{}", x < 0 && shade > 0 ? "-" : " ", kShades[shade]);
  }

  // Rows of numbers with labels; `names`: those of the columns.
  void add_matrix(const Tensor& x, const Names& rows, const Names& names) {
    const int64_t width = x.width();
    const int64_t most_columns = names.empty() ? options_.columns : std::max(options_.columns, kMostNamed);
    const int64_t shown = options_.columns == 0 ? width : std::min(width, most_columns);
    double most = 0;
    for (const float v : x.values<float>())
      if (std::isfinite(v)) most = std::max(most, std::abs(double{v}));
    const size_t label = label_width(rows, x.rows());
    std::vector<std::vector<std::string>> cells;
    size_t cell_width = options_.heat ? 2 : 0;
    for (int64_t r = 0; r < x.rows(); ++r) {
      cells.emplace_back();
      for (int64_t c = 0; c < shown; ++c) {
        cells.back().push_back(cell(x.row<float>(r)[c], most));
        cell_width = std::max(cell_width, text::display_width(cells.back().back()));
      }
    }
    if (!names.empty()) {
      std::string head(label + 2, ' ');
      for (int64_t c = 0; c < shown; ++c) {
        if (!options_.heat)
          cell_width = std::max(cell_width, std::min(kLongestLabel, text::display_width(names[c])));
      }
      for (int64_t c = 0; c < shown; ++c) head += " " + fitted(names[c], cell_width, true);
      out_ += head + "\n";
    }
    for (int64_t r = 0; r < x.rows(); ++r) {
      if (!shows_row(r)) continue;
      out_ += "  " + fitted(row_label(rows, r), label);
      for (const std::string& text : cells[r]) out_ += " " + fitted(text, cell_width, true);
      out_ += shown < width ? " ...\n" : "\n";
    }
  }
  // The number of a token, and its piece.
  static std::string row_label(const Names& rows, int64_t r) {
    return rows.empty() ? std::to_string(r) : fmt::format("{} {}", r, rows[static_cast<size_t>(r)]);
  }
  static size_t label_width(const Names& rows, int64_t count) {
    size_t width = 1;
    for (int64_t r = 0; r < count; ++r) width = std::max(width, text::display_width(row_label(rows, r)));
    return std::min(width, kLongestLabel);
  }

  void add_heads(const TracedValue& value) {
    const ValueNames names = names_of(spec_, value, labels_);
    out_ += fmt::format("  {}  {} heads [queries {} x keys {}]\n", value.name, value.heads.size(),
                        value.heads[0].value.dim(0), value.heads[0].value.dim(1));
    for (const HeadValue& head : value.heads) {
      if (!options_.heads.empty() && std::ranges::find(options_.heads, head.head) == options_.heads.end())
        continue;
      if (value.heads.size() > 1) out_ += fmt::format("  head {}\n", head.head);
      add_matrix(head.value, names.rows, names.columns);
    }
  }

  // The likeliest tokens behind each one.
  void add_best(const TracedValue& value) {
    const Tensor& x = value.rows;
    out_ += fmt::format("  {}  [{} x {}], the highest {}\n", value.name, x.rows(), x.width(),
                        std::min(options_.best, x.width()));
    const Names& rows = labels_.tokens;
    const bool fit = std::ssize(rows) == x.rows();
    const size_t label = label_width(fit ? rows : Names(), x.rows());
    for (int64_t r = 0; r < x.rows(); ++r) {
      if (!shows_row(r)) continue;
      const auto row = x.row<float>(r);
      const std::vector<int64_t> order = highest_places(row, options_.best);
      out_ += "  " + fitted(row_label(fit ? rows : Names(), r), label) + " ";
      for (size_t k = 0; k < order.size(); ++k)
        out_ +=
            fmt::format(" {} {:.{}f}{}", labels_.piece ? labels_.piece(order[k]) : std::to_string(order[k]),
                        row[order[k]], options_.precision, k + 1 < order.size() ? "," : "");
      out_ += "\n";
    }
  }

  const ModelSpec& spec_;
  const WalkLabels& labels_;
  const WalkOptions& options_;
  std::string out_, place_;
  bool of_tokens_ = false;  // rows of the current value are the last stack's tokens
};

}  // namespace

bool is_chosen(const ModelSpec& spec, const TracedValue& value, const WalkOptions& options) {
  if (options.layers.empty()) return true;
  const int64_t layer = step_of(spec, value.name).layer;
  return layer < 0 || std::ranges::find(options.layers, layer) != options.layers.end();
}

ValueNames names_of(const ModelSpec& spec, const TracedValue& value, const WalkLabels& labels) {
  const std::vector<std::string>& own = rows_are_tokens(spec, value) ? labels.tokens : labels.source;
  const auto fitting = [](const std::vector<std::string>& names, int64_t count) {
    return std::ssize(names) == count ? names : std::vector<std::string>();
  };
  if (value.heads.empty())
    return {fitting(own, value.rows.rows()),
            value.name == "classes" ? labels.classes : std::vector<std::string>()};
  const bool cross = value.name.find(".cross_attention.") != std::string::npos;
  const Tensor& head = value.heads[0].value;
  return {fitting(own, head.dim(0)), fitting(cross ? labels.source : own, head.dim(1))};
}

std::vector<int64_t> highest_places(Span<const float> row, int64_t count) {
  std::vector<int64_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const auto kept = std::min<int64_t>(count, std::ssize(order));
  std::partial_sort(order.begin(), order.begin() + kept, order.end(),
                    [&](int64_t a, int64_t b) { return row[a] > row[b] || (row[a] == row[b] && a < b); });
  order.resize(static_cast<size_t>(kept));
  return order;
}

std::string shown_piece(const std::string& piece) {
  std::string out;
  for (size_t at = 0; at < piece.size();) {
    const text::Character c = text::character_at(piece, at);
    const std::string_view bytes = std::string_view(piece).substr(at, c.length);
    at += c.length;
    if (bytes == " ")
      out += "␣";
    else if (bytes == "\n")
      out += "↵";
    else if (bytes == "\t")
      out += "→";
    else if (!c.valid() || text::is_other(c.codepoint))  // neither a terminal nor a page should obey them
      for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    else
      out += bytes;
  }
  return out.empty() ? "∅" : out;
}

std::string walk_text(const ModelSpec& spec, const Trace& trace, const WalkLabels& labels,
                      const WalkOptions& options) {
  Walk walk(spec, labels, options);
  for (const TracedValue& value : trace.values()) {
    // Without a norm of the embeddings their sum is what the blocks read.
    if (value.name.ends_with(".embedding.sum") && !spec.embedding_norm) continue;
    if (is_chosen(spec, value, options)) walk.add(value);
  }
  return walk.text();
}

}  // namespace qkv
