#include "qkv/cli/text_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "qkv/cli/console.h"
#include "qkv/data/table.h"
#include "qkv/train/corpora/documents.h"

namespace qkv {
namespace {

using Predict = std::function<std::vector<Prediction>(const std::vector<InputText>&)>;

constexpr int64_t kRowsAtOnce = 1024;

FileFormat format_of(const TextInput& in) {
  return qkv::format_of(in.file, file_options(in.columns));
}

// The column that is named, or else the first usual one that there is; a name that there is not where there
// is none of them.
std::string column_among(const std::vector<std::string>& header, const std::string& named,
                         const std::vector<std::string>& usual) {
  const auto has = [&](const std::string& name) { return std::ranges::find(header, name) != header.end(); };
  if (!named.empty()) return named;
  const auto found = std::ranges::find_if(usual, has);
  return found != usual.end() ? *found : usual.front();
}

const char* column_option(const TextInput& in) {
  return in.column == &DataConfig::source_column ? "--source-column" : "--text-column";
}

bool has_second(const TextInput& in) {
  return in.pairs == TextInput::Second::needed ||
         (in.pairs != TextInput::Second::none && !in.columns.second_column.empty());
}

// A text, or a list of words with spaces between them.
std::string text_of(const JsonField& field) {
  if (!field.json().is_array()) return field.string();
  std::string out;
  for (size_t i = 0; i < field.size(); ++i) {
    const std::string& word = field.at(i).string();
    if (word.empty() || word.find_first_of(" \t\r\n") != std::string::npos)
      field.at(i).refuse("a word without spaces");
    out += (i > 0 ? " " : "") + word;
  }
  return out;
}

// ---- Lines

// True where a line may hold both texts.
bool divides_lines(const TextInput& in) {
  return in.pairs == TextInput::Second::possible || in.pairs == TextInput::Second::needed;
}

TextPair text_of_line(const TextInput& in, const std::string& line, const std::string& place) {
  const size_t tab = line.find('\t');
  if (!divides_lines(in) || tab == std::string::npos) return {line, ""};
  TextPair text{line.substr(0, tab), line.substr(tab + 1)};
  check(in.pairs == TextInput::Second::needed || text.second.find('\t') == std::string::npos,
        "{}: expected a text, or two texts with a tab between them, got {} fields (--text-column reads a "
        "file of "
        "rows)",
        place, std::ranges::count(line, '\t') + 1);
  return text;
}

void predict_lines(const TextInput& in, const Predict& f) {
  for_each_lines(in.file, in.lines_at_once, [&](const std::vector<std::string>& lines, int64_t from) {
    std::vector<InputText> texts;
    for (const std::string& line : lines) {
      const int64_t number = from + std::ssize(texts);
      const std::string place = fmt::format("{}:{}", input_name(in.file), number);
      InputText text{{}, place, number};
      if (!in.json_lines) {
        text.text = text_of_line(in, line, place);
      } else if (!line.empty()) {
        const Json json = parse_json(line, place);
        const JsonField object(json, place);
        text.text.first = object[in.first.front()].string();
        if (!in.second.empty()) text.text.second = object.string_or(in.second.front(), "");
      }
      texts.push_back(std::move(text));
    }
    std::string out;
    for (const Prediction& p : f(texts)) out += p.line;
    if (!in.silent) print(out);
  });
}

// ---- Rows

[[noreturn]] void fail_already_there(const std::string& place, const std::string& column) {
  fail("{}: there is a column '{}' already, which would hold the predictions: rename it", place, column);
}

// An object a line: as it stands, with the predictions behind its last member.
void predict_json_rows(const TextInput& in, const Predict& f) {
  for_each_lines(in.file, in.lines_at_once, [&](const std::vector<std::string>& lines, int64_t from) {
    std::vector<InputText> texts;
    std::vector<Json> rows;
    for (const std::string& line : lines) {
      const int64_t number = from + std::ssize(texts);
      const std::string place = fmt::format("{}:{}", input_name(in.file), number);
      InputText text{{}, place, number};
      rows.emplace_back();
      if (line.find_first_not_of(" \t") != std::string::npos) {
        rows.back() = parse_json(line, place);
        const JsonField object(rows.back(), place);
        std::vector<std::string> keys;
        for (const auto& [key, value] : object.object().items()) keys.push_back(key);
        const std::string first = column_among(keys, in.columns.*in.column, in.first);
        check(object.json().contains(first),
              "{}: there is no \"{}\" (the keys are: {}): name the one with the text "
              "by {}",
              place, first, fmt::join(keys, ", "), column_option(in));
        text.text.first = text_of(object[first]);
        if (has_second(in))
          text.text.second = object[column_among(keys, in.columns.second_column, in.second)].string();
      }
      texts.push_back(std::move(text));
    }
    const std::vector<Prediction> predictions = f(texts);
    std::string out;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (rows[i].is_null()) {
        out += "\n";
        continue;
      }
      for (const auto& [key, value] : predictions[i].columns.items())
        if (rows[i].contains(key)) fail_already_there(texts[i].place, key);
      const std::string open = lines[i].substr(0, lines[i].rfind('}'));
      const std::string more = json_line(predictions[i].columns);  // {...}
      out += open + (rows[i].empty() ? "" : ",") + more.substr(1);
    }
    if (!in.silent) print(out);
  });
}

std::string cell_text(const OrderedJson& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  if (!value.is_array()) return value.dump();
  std::string out;
  for (const OrderedJson& part : value) out += (out.empty() ? "" : " ") + cell_text(part);
  return out;
}

// Delimited rows: as they stand, with further fields; with --json an object each.
class DelimitedRows {
 public:
  DelimitedRows(const TextInput& in, const Predict& f)
      : in_(in), f_(f), options_(file_options(in.columns)), delimiter_(delimiter_of(in.file, options_)) {}

  void predict() {
    Notes notes;
    for_each_row(
        in_.file, options_, [&](const Table& head) { take_head(head); }, [&](TableRow& row) { take(row); },
        &notes);
    give();
    print_notes(notes);
  }

 private:
  void take_head(const Table& head) {
    columns_ = head.columns;
    const std::string first = column_among(columns_, in_.columns.*in_.column, in_.first);
    if (columns_.size() > 1 && std::ranges::find(columns_, first) == columns_.end())
      fail(
          "{}: there is no column '{}' (it has: {}): name the one with the texts by {}, or all by --columns "
          "where "
          "the file has no header",
          in_.file, first, fmt::join(columns_, ", "), column_option(in_));
    first_ = head.column(first);
    if (has_second(in_)) second_ = head.column(column_among(columns_, in_.columns.second_column, in_.second));
  }

  void take(TableRow& row) {
    InputText text{{row.fields[first_], ""}, fmt::format("{}:{}", in_.file, row.line), ++number_};
    if (second_) text.text.second = row.fields[*second_];
    texts_.push_back(std::move(text));
    rows_.push_back({std::move(row.fields), std::string(row.text)});
    if (std::ssize(rows_) == (in_.lines_at_once > 0 ? in_.lines_at_once : kRowsAtOnce)) give();
  }

  void give() {
    if (rows_.empty()) return;
    const std::vector<Prediction> predictions = f_(texts_);
    std::string out;
    if (!begun_) out += header(predictions[0].columns);
    begun_ = true;
    for (size_t r = 0; r < rows_.size(); ++r) {
      if (in_.json) {
        OrderedJson object;
        for (size_t c = 0; c < columns_.size(); ++c) object[columns_[c]] = rows_[r].fields[c];
        object.update(predictions[r].columns);
        out += json_line(object);
        continue;
      }
      out += rows_[r].text;
      for (const OrderedJson& value : predictions[r].columns) out += field(cell_text(value));
      out += "\n";
    }
    if (!in_.silent) print(out);
    texts_.clear();
    rows_.clear();
  }

  // The header of the output, where the input has one.
  std::string header(const OrderedJson& further) {
    std::string out;
    for (const std::string& column : columns_) out += field(column);
    for (const auto& [column, value] : further.items()) {
      if (std::ranges::find(columns_, column) != columns_.end()) fail_already_there(in_.file, column);
      out += field(column);
    }
    return in_.json || !in_.columns.columns.empty() ? "" : out.substr(1) + "\n";
  }

  std::string field(const std::string& text) const {
    return delimiter_ + field_text(text, in_.file, options_);
  }

  const TextInput& in_;
  const Predict& f_;
  FileOptions options_;
  char delimiter_;
  std::vector<std::string> columns_;
  size_t first_ = 0;
  std::optional<size_t> second_;
  std::vector<InputText> texts_;
  struct Row {
    std::vector<std::string> fields;
    std::string text;
  };
  std::vector<Row> rows_;
  int64_t number_ = 0;
  bool begun_ = false;
};

}  // namespace

void add_text_input(Command& c, TextInput& in) {
  const bool pairs = in.pairs != TextInput::Second::none;
  c.add_option("--file", in.file,
               "Input file: text lines, or rows (.csv, .tsv, .jsonl), to which qkv adds columns with "
               "predictions (default: standard input)");
  c.add_option("--lines", in.lines_at_once, kLinesHelp)->range(1, 1 << 20);
  c.add_flag("--json", in.json, "Print a JSON object per line");
  c.add_flag("--json-lines", in.json_lines,
             pairs ? fmt::format("Read a JSON object a line, with \"{}\" and \"{}\"; print predictions alone",
                                 in.first.front(), in.second.front())
                   : fmt::format("Read a JSON object a line, with \"{}\"; print predictions alone",
                                 in.first.front()));
  c.add_option(column_option(in), in.columns.*in.column,
               fmt::format("Column of rows that holds the text (default: that of the run, or {})",
                           fmt::join(in.first, " or ")))
      ->excludes("--json-lines");
  if (divides_lines(in))
    c.add_option(
         "--second-column", in.columns.second_column,
         fmt::format("Column of rows that holds the other text of a pair (default: that of the run{})",
                     in.pairs == TextInput::Second::needed ? ", or " + in.second.front() : ""))
        ->excludes("--json-lines");
  c.add_option("--columns", in.columns.columns, "Column names for a file without a header: a,b,c")
      ->delimiter(',')
      ->excludes("--json-lines");
  c.add_option("--format", in.columns.format, "Format of --file (default: by its extension)")
      ->one_of({"auto", "text", "tsv", "csv", "jsonl", "conll", "conllu"})
      ->excludes("--json-lines");
  c.add_option("--delimiter", in.columns.delimiter,
               "Character between columns of rows (default: comma, in .tsv a tab)")
      ->excludes("--json-lines");
  in.columns.*in.column = "";
  in.given = [&c](const char* option) {
    return std::ranges::any_of(c.given(), [&](const Option* o) { return o->name() == option; });
  };
}

bool reads_rows(const TextInput& in) {
  if (in.json_lines) return false;
  for (const char* option :
       {column_option(in), "--second-column", "--begin-column", "--columns", "--delimiter"})
    if (in.given(option)) return true;
  const FileFormat format = format_of(in);
  if (format != FileFormat::tsv || in.given("--format") || !divides_lines(in))
    return is_of_rows(in.file, file_options(in.columns));
  // Pairs of lines have tabs too: their first is no header.
  const std::vector<std::string> header = read_header(in.file, file_options(in.columns));
  return std::ranges::any_of(
      in.first, [&](const std::string& name) { return std::ranges::find(header, name) != header.end(); });
}

void take_settings_of_run(TextInput& in, const std::string& dir) {
  if (in.json_lines) return;
  std::optional<RunConfig> run;
  try {
    run = read_run_config(dir);
  } catch (const Error& e) {
    fmt::print(stderr, "note: the run's settings are not used: {}\n", e.what());
  }
  if (!run) return;
  const DataConfig* data = run->config.mix.empty() ? &run->config.data : data_of(run->config, in.objective);
  if (data == nullptr) return;
  in.first.insert(in.first.begin(), data->*in.column);
  if (!reads_rows(in) || in.file.empty()) return;
  take_format(in.columns, in.file, *data, in.given);
  take_columns(in.columns, in.file, read_header(in.file, file_options(in.columns)), *data, in.objective,
               in.given);
  if (!in.given(column_option(in))) in.columns.*in.column = "";  // the first of in.first that there is
}

void predict_texts(const TextInput& in, const Predict& f) {
  if (!reads_rows(in)) return predict_lines(in, f);
  if (format_of(in) == FileFormat::jsonl) return predict_json_rows(in, f);
  check(!in.file.empty() && in.file != "-",
        "rows are read from a file, unless they are JSON (--format jsonl): "
        "give it with --file");
  DelimitedRows(in, f).predict();
}

void note_cut(int64_t cut, int64_t tokens) {
  if (cut > 0)
    fmt::print(stderr, "note: {} {} longer than the model's {} tokens and {} cut\n", cut,
               cut == 1 ? "text is" : "texts are", tokens, cut == 1 ? "was" : "were");
}

std::string json_line(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace qkv
