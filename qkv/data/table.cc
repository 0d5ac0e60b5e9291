#include "qkv/data/table.h"

#include <sstream>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/suggest.h"

namespace qkv {
namespace {

// Reads the fields of delimited text, one record at a time.
class Delimited {
 public:
  Delimited(const std::string& path, std::string_view text, char delimiter, bool quotes)
      : path_(path), text_(text), delimiter_(delimiter), quotes_(quotes) {}

  bool done() const { return at_ >= text_.size(); }
  int64_t line() const { return line_; }

  std::vector<std::string> record() {
    std::vector<std::string> fields;
    for (;;) {
      fields.push_back(quotes_ && peek() == '"' ? quoted(fields.size() + 1) : plain(fields.size() + 1));
      if (peek() != delimiter_) break;
      ++at_;
    }
    if (peek() == '\r') ++at_;
    if (peek() == '\n') ++at_;
    ++line_;
    return fields;
  }

 private:
  int peek() const { return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : -1; }

  std::string plain(size_t field) {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != delimiter_ && text_[at_] != '\n') {
      if (text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') break;
      check(!quotes_ || text_[at_] != '"', "{}:{}: field {}: a quote inside a field that is not quoted",
            path_, line_, field);
      ++at_;
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string quoted(size_t field) {
    const int64_t start = line_;
    std::string out;
    for (++at_;; ++at_) {
      check(at_ < text_.size(), "{}:{}: field {}: the quote that opens it is never closed", path_, start,
            field);
      if (text_[at_] == '"') {
        ++at_;
        if (peek() != '"') break;
      }
      line_ += text_[at_] == '\n';
      out += text_[at_];
    }
    const int next = peek();
    check(next == -1 || next == delimiter_ || next == '\n' || next == '\r',
          "{}:{}: field {}: text after the quote that closes it", path_, line_, field);
    return out;
  }

  const std::string& path_;
  std::string_view text_;
  char delimiter_;
  bool quotes_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

Table read_delimited(const std::string& path, char delimiter, bool quotes,
                     const std::vector<std::string>& columns) {
  const std::string text = read_file(path);
  check(!text.empty(), "{}: the file is empty", path);
  Delimited in(path, text, delimiter, quotes);
  Table table{path, columns.empty() ? in.record() : columns, {}, {}};
  while (!in.done()) {
    const int64_t line = in.line();
    table.rows.push_back(in.record());
    table.lines.push_back(line);
    check(table.rows.back().size() == table.columns.size(), "{}:{}: expected {} fields ({}), got {}", path,
          line, table.columns.size(), fmt::join(table.columns, ", "), table.rows.back().size());
  }
  return table;
}

Table read_json_lines(const std::string& path) {
  Table table{path, {}, {}, {}};
  std::istringstream in(read_file(path));
  for_each_json_line(in, path, [&](const Json& value, const std::string& place) {
    const JsonField object(value, place);
    if (table.columns.empty())
      for (const auto& [key, member] : object.object().items()) table.columns.push_back(key);
    std::vector<std::string> row;
    for (const std::string& key : table.columns) {
      const JsonField field = object[key];
      row.push_back(field.json().is_number() ? field.json().dump() : field.string());
    }
    table.rows.push_back(std::move(row));
    table.lines.push_back(std::stoll(place.substr(place.rfind(':') + 1)));
  });
  check(!table.rows.empty(), "{}: the file is empty", path);
  return table;
}

}  // namespace

size_t Table::column(std::string_view name) const {
  for (size_t c = 0; c < columns.size(); ++c)
    if (columns[c] == name) return c;
  const std::vector<std::string_view> known(columns.begin(), columns.end());
  fail("{}: there is no column '{}' (did you mean '{}'?)", path, name, nearest(name, known));
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    out.emplace_back(line);
    at = end + 1;
  }
  return out;
}

Table read_table(const std::string& path, const std::vector<std::string>& columns) {
  if (path.ends_with(".tsv")) return read_delimited(path, '\t', false, columns);
  if (path.ends_with(".csv")) return read_delimited(path, ',', true, columns);
  if (path.ends_with(".jsonl")) return read_json_lines(path);
  fail("{}: expected a file of rows: .tsv, .csv or .jsonl", path);
}

Table read_parallel(const std::string& source, const std::string& target) {
  std::vector<std::string> from = lines_of(read_file(source)), to = lines_of(read_file(target));
  check(from.size() == to.size(), "{} has {} lines, {} has {}: each line needs its translation", source,
        from.size(), target, to.size());
  Table table{source, {"source", "target"}, {}, {}};
  for (size_t i = 0; i < from.size(); ++i) {
    table.rows.push_back({std::move(from[i]), std::move(to[i])});
    table.lines.push_back(static_cast<int64_t>(i) + 1);
  }
  return table;
}

}  // namespace qkv
