#include "qkv/train/corpora/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/data/conll.h"
#include "qkv/data/table.h"
#include "qkv/train/corpora/documents.h"

namespace qkv {
namespace {

// A row of a file.
struct Row {
  Example example;
  std::vector<std::string> names;  // names of its choices, if the file has any
};

// The texts of a JSON list.
std::vector<std::string> texts_in(const JsonField& list) {
  if (!list.json().is_array()) list.refuse("a list of texts");
  std::vector<std::string> out;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonField entry = list.at(i);
    out.push_back(entry.json().is_number() ? entry.json().dump() : entry.string());
  }
  return out;
}

// The choices of a cell.
void read_cell(const std::string& cell, const std::string& place, Row& row) {
  const Json json = parse_json(cell, place);
  const JsonField field(json, place);
  if (!json.is_object()) {
    row.example.choices = texts_in(field);
    return;
  }
  row.example.choices = texts_in(field["text"]);
  if (!json.contains("label")) return;
  row.names = texts_in(field["label"]);
  check(row.names.size() == row.example.choices.size(), "{}: {} choices, but {} labels of them", place,
        row.example.choices.size(), row.names.size());
}

// One of the ways in which a file says which choice is right. Each returns nothing where the label is none.
std::optional<int64_t> by_number(const Row& row) {
  const std::string& s = row.example.label;
  int64_t n = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
  if (error != std::errc() || end != s.data() + s.size() || n < 0 || n >= std::ssize(row.example.choices))
    return std::nullopt;
  return n;
}

std::optional<int64_t> by_letter(const Row& row) {
  const std::string& s = row.example.label;
  if (s.size() != 1 || std::isalpha(static_cast<unsigned char>(s[0])) == 0) return std::nullopt;
  const int64_t n = s[0] >= 'a' ? s[0] - 'a' : s[0] - 'A';
  return n < std::ssize(row.example.choices) ? std::optional(n) : std::nullopt;
}

// The first of those that equal the label.
std::optional<int64_t> place_in(const std::vector<std::string>& all, const std::string& label) {
  const auto at = std::ranges::find(all, label);
  return at == all.end() ? std::nullopt : std::optional<int64_t>(at - all.begin());
}

std::optional<int64_t> by_name(const Row& row) {
  return place_in(row.names, row.example.label);
}

std::optional<int64_t> by_text(const Row& row) {
  return place_in(row.example.choices, row.example.label);
}

using Way = std::optional<int64_t> (*)(const Row&);

bool fits_all(const std::vector<Row>& rows, Way way) {
  return std::ranges::all_of(rows, [&](const Row& row) { return way(row).has_value(); });
}

// The first way that finds a choice in every row.
Way way_of(const std::vector<Row>& rows, const std::string& column) {
  if (std::ranges::all_of(rows, [](const Row& row) { return !row.names.empty(); })) {
    for (const Row& row : rows)
      check(by_name(row).has_value(), "{}: column '{}': '{}' is the label of none of its choices ({})",
            row.example.place, column, row.example.label, fmt::join(row.names, ", "));
    return by_name;
  }
  if (fits_all(rows, by_number)) {
    const auto differs =
        std::ranges::find_if(rows, [](const Row& row) { return by_text(row) != by_number(row); });
    check(
        differs == rows.end() || !fits_all(rows, by_text),
        "{}: column '{}': '{}' is the number of a choice and the text of another: write letters (A, B, ...)",
        differs == rows.end() ? "" : differs->example.place, column,
        differs == rows.end() ? "" : differs->example.label);
    return by_number;
  }
  for (const Way way : {by_letter, by_text})
    if (fits_all(rows, way)) return way;
  // Blames a row that stands alone: the way that most rows go finds nothing there.
  Way most = by_number;
  const auto count = [&](Way way) {
    return std::ranges::count_if(rows, [&](const Row& row) { return way(row).has_value(); });
  };
  for (const Way way : {by_letter, by_text})
    if (count(way) > count(most)) most = way;
  const auto bad = std::ranges::find_if(rows, [&](const Row& row) { return !most(row).has_value(); });
  fail("{}: column '{}': expected which of {} choices is right ({}), got '{}'", bad->example.place, column,
       bad->example.choices.size(),
       most == by_number   ? fmt::format("a number from 0 to {}", bad->example.choices.size() - 1)
       : most == by_letter ? "a letter from A"
                           : "its text",
       bad->example.label);
}

// Reads all rows; `labelled`: with the column of labels.
std::vector<Row> read_rows(const std::string& path, const DataConfig& data, bool labelled, Notes* notes) {
  FileOptions options = file_options(data);
  options.json_columns = data.choice_columns;
  check(!data.choice_columns.empty(), "{}: choice_columns: expected the columns with the choices", path);
  Table table = read_table(path, options, notes);
  const size_t first = table.column(data.text_column);
  std::optional<size_t> second, label;
  if (!data.second_column.empty()) second = table.column(data.second_column);
  if (labelled) label = table.column(data.label_column);
  std::vector<size_t> columns;
  for (const std::string& name : data.choice_columns) columns.push_back(table.column(name));
  std::vector<Row> rows;
  for (size_t r = 0; r < table.rows.size(); ++r) {
    auto& cells = table.rows[r];
    Row row;
    Example& e = row.example;
    e.place = fmt::format("{}:{}", path, table.lines[r]);
    if (columns.size() == 1) {
      read_cell(cells[columns[0]], fmt::format("{}: column '{}'", e.place, data.choice_columns[0]), row);
    } else {
      for (const size_t c : columns) e.choices.push_back(cells[c]);
      while (!e.choices.empty() && is_blank(e.choices.back())) e.choices.pop_back();
    }
    check(e.choices.size() > 1, "{}: {} choice{}: a question needs two", e.place, e.choices.size(),
          e.choices.size() == 1 ? "" : "s");
    for (size_t c = 0; c < e.choices.size(); ++c)
      check(!is_blank(e.choices[c]), "{}: choice {} is empty", e.place, c + 1);
    if (label) e.label = cells[*label];
    trim_label(e.label);
    check(!label || !e.label.empty(), "{}: column '{}' is empty", e.place, data.label_column);
    if (second) e.text.second = std::move(cells[*second]);
    e.text.first = std::move(cells[first]);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

void read_choices(const std::string& path, const DataConfig& data, std::vector<Example>& out,
                  ReadExamples& found) {
  std::vector<Row> rows = read_rows(path, data, true, &found.notes);
  if (rows.empty()) return;
  const Way way = way_of(rows, data.label_column);
  for (Row& row : rows) {
    Example& e = row.example;
    e.right = *way(row);
    e.label = e.choices[static_cast<size_t>(e.right)];
    (is_blank(e.text.first) ? found.without_text : out).push_back(std::move(e));
  }
}

std::vector<Example> read_choices_alone(const std::string& path, const DataConfig& data, Notes* notes) {
  std::vector<Example> out;
  for (Row& row : read_rows(path, data, false, notes)) out.push_back(std::move(row.example));
  return out;
}

std::vector<TextPair> texts_of_choices(const Example& e) {
  std::vector<TextPair> out;
  for (const std::string& choice : e.choices)
    out.push_back({e.text.first, e.text.second.empty() ? choice : e.text.second + " " + choice});
  return out;
}

}  // namespace qkv
