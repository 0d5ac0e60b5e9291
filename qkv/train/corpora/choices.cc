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
  const Json json = Json::parse(cell, nullptr, false);
  const JsonField field(json, place);
  if (json.is_array()) {
    row.example.choices = texts_in(field);
    return;
  }
  check(json.is_object() && json.contains("text"),
        "{}: expected a JSON list of choices, like [\"one\", \"two\"], or an object with \"text\" and "
        "\"label\" (for a column per choice, name them all in choice_columns)",
        place);
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

std::string trimmed(std::string text) {
  trim_label(text);
  return text;
}

// The one that equals the label. Several equal ones are none.
std::optional<int64_t> place_in(const std::vector<std::string>& all, const std::string& label) {
  std::optional<int64_t> found;
  for (size_t i = 0; i < all.size(); ++i) {
    if (trimmed(all[i]) != label) continue;
    if (found) return std::nullopt;
    found = static_cast<int64_t>(i);
  }
  return found;
}

std::optional<int64_t> by_name(const Row& row) {
  return place_in(row.names, row.example.label);
}

std::optional<int64_t> by_text(const Row& row) {
  return place_in(row.example.choices, row.example.label);
}

// One of the ways in which a file says which choice is right.
struct Way {
  std::optional<int64_t> (*find)(const Row&);
  const char *of, *instead;  // the label in words; another way to write it, which is never mistaken
};
constexpr Way kNumber = {by_number, "the number", "letters (A, B, ...)"},
              kLetter = {by_letter, "the letter", "numbers (0, 1, ...)"},
              kText = {by_text, "the text", "numbers (0, 1, ...)"};

// The way that finds a choice in every row.
Way way_of(const std::vector<Row>& rows, const std::string& column) {
  const auto named = std::ranges::find_if(rows, [](const Row& row) { return !row.names.empty(); });
  if (named != rows.end()) {
    for (const Row& row : rows) {
      check(!row.names.empty(), "{}: its choices have no labels, but those of {} have", row.example.place,
            named->example.place);
      check(by_name(row).has_value(), "{}: column '{}': '{}' is not the label of one choice (they are {})",
            row.example.place, column, row.example.label, fmt::join(row.names, ", "));
    }
    return {by_name, "the label", ""};
  }
  std::optional<Way> found;
  for (const Way& way : {kNumber, kLetter, kText}) {
    if (!std::ranges::all_of(rows, [&](const Row& row) { return way.find(row).has_value(); })) continue;
    if (!found) {
      found = way;
      continue;
    }
    for (const Row& row : rows)
      check(way.find(row) == found->find(row),
            "{}: column '{}': '{}' is {} of one choice and {} of another: write {}", row.example.place,
            column, row.example.label, found->of, way.of, found->instead);
  }
  if (found) return *found;
  // Blames a row in which the way that most rows go finds nothing.
  const auto count = [&](const Way& way) {
    return std::ranges::count_if(rows, [&](const Row& row) { return way.find(row).has_value(); });
  };
  Way most = kNumber;
  for (const Way& way : {kLetter, kText})
    if (count(way) > count(most)) most = way;
  const auto bad = std::ranges::find_if(rows, [&](const Row& row) { return !most.find(row).has_value(); });
  fail(
      "{}: column '{}': expected which of {} choices is right, in all rows alike: its number from 0 to {}, "
      "its "
      "letter or its text, got '{}'",
      bad->example.place, column, bad->example.choices.size(), bad->example.choices.size() - 1,
      bad->example.label);
}

// The place of a column with choices.
size_t column_of_choices(const Table& table, const std::string& name) {
  const auto at = std::ranges::find(table.columns, name);
  check(at != table.columns.end(),
        "{}: there is no column '{}' with choices (it has: {}): set data.choice_columns (--choice-columns)",
        table.path, name, fmt::join(table.columns, ", "));
  return static_cast<size_t>(at - table.columns.begin());
}

// Reads all rows; `labelled`: with the column of labels.
std::vector<Row> read_rows(const std::string& path, const DataConfig& data, bool labelled, Notes* notes) {
  check(!data.choice_columns.empty(), "{}: choice_columns: expected the columns with the choices", path);
  std::vector<std::string> named = {data.text_column};
  if (!data.second_column.empty()) named.push_back(data.second_column);
  if (labelled) named.push_back(data.label_column);
  FileOptions options = file_options(data);
  options.text_columns = named;
  for (const std::string& column : data.choice_columns) {
    check(std::ranges::find(named, column) == named.end(), "{}: choice_columns: column '{}' is named twice",
          path, column);
    named.push_back(column);
    if (data.choice_columns.size() > 1) options.text_columns.push_back(column);
  }
  Table table = read_table(path, options, notes);
  const size_t first = table.column(data.text_column);
  std::optional<size_t> second, label;
  if (!data.second_column.empty()) second = table.column(data.second_column);
  if (labelled) label = table.column(data.label_column);
  std::vector<size_t> columns;
  for (const std::string& name : data.choice_columns) columns.push_back(column_of_choices(table, name));
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
      drop_empty_end(e.choices);
    }
    expect_choices(e);
    if (label) e.label = cells[*label];
    trim_label(e.label);
    check(!label || !e.label.empty(), "{}: column '{}' is empty", e.place, data.label_column);
    if (second) e.text.second = cells[*second];
    e.text.first = cells[first];
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

void drop_empty_end(std::vector<std::string>& choices) {
  while (!choices.empty() && is_blank(choices.back())) choices.pop_back();
}

void expect_choices(const Example& e) {
  check(e.choices.size() > 1, "{}: {} choice{}: a question needs two", e.place, e.choices.size(),
        e.choices.size() == 1 ? "" : "s");
  for (size_t c = 0; c < e.choices.size(); ++c)
    check(!is_blank(e.choices[c]), "{}: choice {} is empty", e.place, c + 1);
}

void read_choices(const std::string& path, const DataConfig& data, std::vector<Example>& out,
                  ReadExamples& found) {
  std::vector<Row> rows = read_rows(path, data, true, &found.notes);
  if (rows.empty()) return;
  const Way way = way_of(rows, data.label_column);
  for (Row& row : rows) {
    Example& e = row.example;
    e.right = *way.find(row);
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
