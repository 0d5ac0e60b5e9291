#include "qkv/data/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/base/suggest.h"

namespace qkv {
namespace {

constexpr char kDelimiters[] = {',', ';', '\t', '|'};  // common delimiters

// The likely delimiter of a line that has one field; 0: none.
char likely_delimiter(std::string_view line) {
  char best = 0;
  std::ptrdiff_t most = 0;
  for (const char c : kDelimiters)
    if (const auto n = std::count(line.begin(), line.end(), c); n > most) best = c, most = n;
  return best;
}

[[noreturn]] void fail_otherwise_divided(const std::string& path, char delimiter) {
  if (delimiter == ',')
    fail("{} seems to be divided by \",\": set data.format = \"csv\" (qkv eval: --format csv)", path);
  if (delimiter == '\t')
    fail("{} seems to be divided by tabs: set data.format = \"tsv\" (qkv eval: --format tsv)", path);
  fail("{} seems to be divided by \"{}\": set data.delimiter = \"{}\" (qkv eval: --delimiter \"{}\")", path,
       delimiter, delimiter, delimiter);
}

// Reads the fields of delimited text, one record at a time.
class Delimited {
 public:
  // `keep_returns`: keep "\r\n" in quoted fields.
  Delimited(const std::string& path, std::string_view text, char delimiter, bool quotes, bool keep_returns)
      : path_(path), text_(text), delimiter_(delimiter), quotes_(quotes), keep_returns_(keep_returns) {}

  bool done() const { return at_ >= text_.size(); }
  bool changed_line_ends() const { return changed_; }

  TableRow record() {
    TableRow row{{}, line_, {}};
    std::vector<std::string>& fields = row.fields;
    const size_t begin = at_;
    for (;;) {
      fields.push_back(quotes_ && peek() == '"' ? quoted(fields.size() + 1) : plain(fields.size() + 1));
      if (peek() != delimiter_) break;
      ++at_;
    }
    row.text = text_.substr(begin, at_ - begin);
    if (peek() == '\r') ++at_;
    if (peek() == '\n') ++at_;
    ++line_;
    return row;
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
      if (!keep_returns_ && text_.substr(at_, 2) == "\r\n") {
        changed_ = true;
        continue;
      }
      out += text_[at_];
    }
    const int next = peek();
    if (field == 1 && next != delimiter_ && std::ranges::count(kDelimiters, next) > 0)
      fail_otherwise_divided(path_, static_cast<char>(next));
    check(next == -1 || next == delimiter_ || next == '\n' || next == '\r',
          "{}:{}: field {}: text after the quote that closes it", path_, line_, field);
    return out;
  }

  const std::string& path_;
  std::string_view text_;
  char delimiter_;
  bool quotes_, keep_returns_, changed_ = false;
  size_t at_ = 0;
  int64_t line_ = 1;
};

void for_each_delimited_row(const std::string& path, const FileOptions& options, const OnColumns& on_columns,
                            const OnRow& on_row, Notes* notes) {
  const FileText file = open_text(path, options, notes);
  check(!file.text.empty(), "{}: the file is empty", path);
  Delimited in(path, file.text, delimiter_of(path, options), format_of(path, options) == FileFormat::csv,
               options.keep_carriage_returns);
  const Table head{path, options.columns.empty() ? in.record().fields : options.columns, {}, {}};
  for (size_t c = 0; c < head.columns.size(); ++c)
    for (size_t other = 0; other < c; ++other)
      check(head.columns[c] != head.columns[other], "{}:1: columns {} and {} have the same name '{}'", path,
            other + 1, c + 1, head.columns[c]);
  on_columns(head);
  while (!in.done()) {
    TableRow row = in.record();
    const size_t fields = row.fields.size();
    if (fields == 1 && head.columns.size() > 1)
      if (const char likely = likely_delimiter(row.fields[0]); likely != 0 && row.line == 1)
        fail_otherwise_divided(path, likely);
    check(fields == head.columns.size(), "{}:{}: expected {} fields ({}), got {}", path, row.line,
          head.columns.size(), fmt::join(head.columns, ", "), fields);
    on_row(row);
  }
  if (in.changed_line_ends()) note_line_ends(path, notes);
}

void for_each_json_row(const std::string& path, const FileOptions& options, const OnColumns& on_columns,
                       const OnRow& on_row, Notes* notes) {
  Table head{path, {}, {}, {}};
  const FileText file = open_text(path, options, notes);
  TextStream in(file.text);
  for_each_json_line(in, path, [&](const Json& value, const std::string& place) {
    const JsonField object(value, place);
    if (head.columns.empty()) {
      for (const auto& [key, member] : object.object().items()) head.columns.push_back(key);
      on_columns(head);
    }
    TableRow row{{}, std::stoll(place.substr(place.rfind(':') + 1)), {}};
    for (const std::string& key : head.columns) {
      const JsonField field = object[key];
      const bool any = !options.text_columns.empty() &&
                       std::ranges::find(options.text_columns, key) == options.text_columns.end();
      const bool as_json = field.json().is_number() || (any && !field.json().is_string());
      row.fields.push_back(as_json ? field.json().dump() : field.string());
    }
    on_row(row);
  });
  check(!head.columns.empty(), "{}: the file is empty", path);
}

// Removes and returns the first line of `text`, without its end.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

int64_t count_lines(std::string_view text) {
  return std::count(text.begin(), text.end(), '\n') + (!text.empty() && text.back() != '\n');
}

}  // namespace

size_t Table::column(std::string_view name) const {
  for (size_t c = 0; c < columns.size(); ++c)
    if (columns[c] == name) return c;
  if (columns.size() == 1)
    if (const char likely = likely_delimiter(columns[0]); likely != 0) fail_otherwise_divided(path, likely);
  const std::vector<std::string_view> known(columns.begin(), columns.end());
  fail(
      "{}: there is no column '{}'{} (it has: {}). Name the column, or all columns if the file has no header "
      "(data.columns, --columns)",
      path, name, did_you_mean(name, known), fmt::join(known, ", "));
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> out;
  text = without_mark(text);
  while (!text.empty()) out.emplace_back(take_line(text));
  return out;
}

void for_each_row(const std::string& path, const FileOptions& options, const OnColumns& on_columns,
                  const OnRow& on_row, Notes* notes) {
  const FileFormat format = format_of(path, options);
  if (format == FileFormat::jsonl) return for_each_json_row(path, options, on_columns, on_row, notes);
  check(is_of_rows(path, options),
        "{}: expected a file of rows: .tsv, .csv or .jsonl (data.format says what another name holds)", path);
  for_each_delimited_row(path, options, on_columns, on_row, notes);
}

std::vector<std::string> read_header(const std::string& path, const FileOptions& options) {
  struct HeaderIsRead {};
  std::vector<std::string> columns = options.columns;
  if (!columns.empty()) return columns;
  try {
    for_each_row(
        path, options,
        [&](const Table& head) {
          columns = head.columns;
          throw HeaderIsRead();
        },
        [](TableRow&) {});
  } catch (const HeaderIsRead&) {
  }
  return columns;
}

char delimiter_of(const std::string& path, const FileOptions& options) {
  const std::string& d = options.delimiter;
  if (d.empty()) return format_of(path, options) == FileFormat::csv ? ',' : '\t';
  if (d == "\\t") return '\t';
  check(d.size() == 1 && d != "\"" && d != "\n" && d != "\r", "delimiter: expected one character, got '{}'",
        d);
  return d[0];
}

std::string field_text(std::string field, const std::string& path, const FileOptions& options) {
  const char special[] = {delimiter_of(path, options), '"', '\r', '\n'};
  const std::string_view needs_care(special, sizeof special);
  if (format_of(path, options) != FileFormat::csv) {
    for (char& c : field)
      if (c != '"' && needs_care.find(c) != std::string_view::npos) c = ' ';
    return field;
  }
  if (field.find_first_of(needs_care) == std::string::npos) return field;
  for (size_t at = 0; (at = field.find('"', at)) != std::string::npos; at += 2) field.insert(at, 1, '"');
  return '"' + field + '"';
}

Table read_table(const std::string& path, const FileOptions& options, Notes* notes) {
  Table table;
  for_each_row(
      path, options, [&](const Table& head) { table = head; },
      [&](TableRow& row) {
        table.rows.push_back(std::move(row.fields));
        table.lines.push_back(row.line);
      },
      notes);
  return table;
}

void for_each_parallel_line(const std::string& source, const std::string& target,
                            const std::function<void(std::string_view source, std::string_view target)>& f,
                            const FileOptions& options, Notes* notes) {
  const FileText a = open_text(source, options, notes), b = open_text(target, options, notes);
  check(count_lines(a.text) == count_lines(b.text),
        "{} has {} lines, {} has {}: each line needs its translation", source, count_lines(a.text), target,
        count_lines(b.text));
  for (std::string_view from = a.text, to = b.text; !from.empty();) {
    const std::string_view line = take_line(from);
    f(line, take_line(to));
  }
}

}  // namespace qkv
