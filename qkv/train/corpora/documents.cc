#include "qkv/train/corpora/documents.h"

#include <algorithm>

#include "qkv/base/file.h"
#include "qkv/base/hash.h"
#include "qkv/data/table.h"
#include "qkv/train/corpora/corpus_cache.h"

namespace qkv {
namespace {

// A byte that never occurs in UTF-8.
constexpr char kBetween = '\xFF';

// Returns the byte at which the last `fraction` of the characters begins; with a separator, the start of
// the next document.
size_t split_point(std::string_view text, double fraction, const std::string& separator) {
  const auto keep = static_cast<int64_t>(static_cast<double>(count_characters(text)) * (1 - fraction));
  int64_t seen = 0;
  size_t at = 0;
  while (at < text.size() && (continues_character(text[at]) || seen++ != keep)) ++at;
  if (separator.empty()) return at;
  // The byte may be inside a separator, so search from one separator's length before it.
  const size_t next = text.find(separator, at - std::min(at, separator.size() - 1));
  return next == std::string_view::npos ? text.size() : next + separator.size();
}

// Finds the column that looks like a label: few short values, each in many rows.
class LabelFinder {
 public:
  void take_head(const Table& head, size_t text) {
    text_ = text;
    names_ = head.columns;
    values_.resize(names_.size());
    is_text_.assign(names_.size(), false);
  }
  void take_row(const std::vector<std::string>& row) {
    ++rows_;
    for (size_t c = 0; c < row.size(); ++c) {
      if (c == text_ || values_[c].size() > kMost) continue;
      if (row[c].size() > kLongest) {  // too long for a label
        is_text_[c] = true;
        values_[c].clear();
      }
      if (is_text_[c]) continue;
      values_[c].insert(row[c]);
    }
  }
  // The name of that column, or empty.
  std::string label() const {
    if (rows_ < kLeastRows) return "";
    for (size_t c = 0; c < names_.size(); ++c)
      if (c != text_ && values_[c].size() > 1 && values_[c].size() <= std::min(kMost, rows_ / kRowsOfEach))
        return names_[c];
    return "";
  }

 private:
  static constexpr size_t kMost = 200, kLongest = 64, kLeastRows = 20, kRowsOfEach = 5;
  size_t text_ = 0, rows_ = 0;
  std::vector<std::string> names_;
  std::vector<std::unordered_set<std::string>> values_;
  std::vector<bool> is_text_;  // columns with values too long for labels
};

// A file's documents unchanged, or those that the filter keeps, collected in a separate file. `empty`
// counts rows without text.
Documents documents_in(const std::string& path, const DataConfig& data, TextFilter* filter, Notes* notes,
                       int64_t* empty = nullptr, LabelFinder* labels = nullptr) {
  const FileOptions options = file_options(data);
  const bool rows = is_of_rows(path, options);
  Documents plain{path, {}, data.separator, nullptr};
  if (!rows) {
    const FileText file = open_plain_text(path, options, notes);
    check(!file.text.empty(), "{}: the file is empty", path);
    plain.text = file.text;
    plain.owner = file.owner;
    if (filter == nullptr) return plain;
    if (data.separator.empty()) {  // one document, from which validation takes a part
      if (!filter->keeps(plain.text)) plain.text = {};
      return plain;
    }
  }
  ScratchFile collected(options.scratch);
  bool any = false;
  const auto add = [&](std::string_view document, int64_t line = 0) {
    check(document.find(kBetween) == document.npos, "{}{}: byte 0xFF: this is not UTF-8", path,
          line > 0 ? fmt::format(":{}", line) : "");
    if (document.empty() && empty != nullptr) ++*empty;
    if (document.empty() || (filter != nullptr && !filter->keeps(document))) return;
    any = true;
    collected.write(document.data(), document.size());
    collected.write(&kBetween, 1);
  };
  if (rows) {
    size_t column = 0;
    for_each_row(
        path, options,
        [&](const Table& head) {
          column = head.column(data.text_column);
          if (labels != nullptr) labels->take_head(head, column);
        },
        [&](const TableRow& row) {
          if (labels != nullptr) labels->take_row(row.fields);
          add(row.fields[column], row.line);
        },
        notes);
  } else {
    plain.for_each([&](std::string_view document) { add(document); });
  }
  if (!any) return {path, {}, std::string(1, kBetween), nullptr};
  const auto file = collected.mapped();
  return {path, file->text(), std::string(1, kBetween), file};
}

}  // namespace

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !continues_character(c); });
}

FileOptions file_options(const DataConfig& data) {
  return {data.columns,   data.format,
          data.delimiter, data.keep_carriage_returns,
          data.any_bytes, CorpusCache(data.cache).scratch_folder()};
}

std::string without_text(int64_t rows) {
  return rows == 0 ? "" : fmt::format(" ({} row{} without text left out)", rows, rows == 1 ? "" : "s");
}

std::string Skipped::text() const {
  if (repeated == 0 && unfit == 0) return without_text(empty);
  return fmt::format(
             " ({} left out{}{})", repeated + unfit,
             repeated > 0 ? fmt::format(": {} repeated", repeated) : "",
             unfit > 0 ? fmt::format("{} {} of other lengths", repeated > 0 ? "," : ":", unfit) : "") +
         without_text(empty);
}

bool TextFilter::on() const {
  return data_.deduplicate || data_.min_characters > 0 || data_.max_characters > 0 || data_.max_ratio > 0;
}

bool TextFilter::is_fit(int64_t characters) const {
  return characters >= data_.min_characters &&
         (data_.max_characters == 0 || characters <= data_.max_characters);
}

bool TextFilter::is_new(const std::string& hash) {
  const bool fresh = !data_.deduplicate || seen_.insert(hash).second;
  skipped_.repeated += !fresh;
  return fresh;
}

bool TextFilter::keeps(std::string_view text) {
  if (!is_fit(count_characters(text))) {
    ++skipped_.unfit;
    return false;
  }
  return is_new(data_.deduplicate ? hash_of(text) : "");
}

bool TextFilter::keeps(std::string_view source, std::string_view target) {
  const int64_t a = count_characters(source), b = count_characters(target);
  const auto longer = static_cast<double>(std::max(a, b)), shorter = static_cast<double>(std::min(a, b));
  if (!is_fit(a) || !is_fit(b) || (data_.max_ratio > 0 && longer > data_.max_ratio * shorter)) {
    ++skipped_.unfit;
    return false;
  }
  return is_new(data_.deduplicate ? hash_of(source) + hash_of(target) : "");
}

void Documents::for_each(const std::function<void(std::string_view document)>& f) const {
  if (separator.empty()) {
    if (!text.empty()) f(text);
    return;
  }
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    if (end > at) f(text.substr(at, end - at));
    at = end + separator.size();
  }
}

Documents read_documents(const std::string& path, const DataConfig& data, Notes* notes) {
  return documents_in(path, data, nullptr, notes);
}

TextFiles::TextFiles(const DataConfig& data) {
  TextFilter filter(data);
  int64_t empty = 0;
  for (const std::string& path : data.train) {
    LabelFinder labels;
    train.push_back(documents_in(path, data, filter.on() ? &filter : nullptr, &notes, &empty, &labels));
    if (const std::string label = labels.label(); hint.empty() && !label.empty())
      hint = fmt::format(
          "hint: {}: column '{}' looks like a label; to train a classifier set train.objective = "
          "\"classify\" "
          "and model.architecture = \"encoder\"{}",
          path, label, label == data.label_column ? "" : fmt::format(", data.label_column = \"{}\"", label));
  }
  skipped = filter.skipped();
  skipped.empty = empty;
  for (const std::string& path : data.valid) valid.push_back(read_documents(path, data, &notes));
  if (valid.empty() && data.valid_fraction > 0)
    for (Documents& file : train) {
      const size_t at = split_point(file.text, data.valid_fraction, file.separator);
      valid.push_back({file.path, file.text.substr(at), file.separator, file.owner});
      file.text = file.text.substr(0, at);
    }
}

}  // namespace qkv
