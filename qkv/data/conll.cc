#include "qkv/data/conll.h"

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/data/table.h"

namespace qkv {
namespace {

std::vector<std::string> columns_of(const std::string& line, bool tabs) {
  std::vector<std::string> out;
  const char* dividers = tabs ? "\t" : " \t";
  for (size_t at = 0; at <= line.size();) {
    const size_t end = std::min(line.find_first_of(dividers, at), line.size());
    if (tabs || end > at) out.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

}  // namespace

bool trim_label(std::string& label) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t end = label.find_last_not_of(kSpace) + 1,
               begin = std::min(label.find_first_not_of(kSpace), end);
  if (begin == 0 && end == label.size()) return false;
  label = label.substr(begin, end - begin);
  return true;
}

void note_trimmed(const std::string& path, int64_t count, Notes* notes) {
  if (count > 0 && notes != nullptr)
    notes->push_back(fmt::format("note: {}: white space around {} label{} was removed", path, count,
                                 count == 1 ? "" : "s"));
}

std::vector<TaggedSentence> read_conll(const std::string& path, int64_t word_column, int64_t tag_column,
                                       const FileOptions& options, Notes* notes) {
  const bool conllu = format_of(path, options) == FileFormat::conllu;
  if (word_column == 0) word_column = conllu ? 2 : 1;
  if (tag_column == 0 && conllu) tag_column = 4;
  int64_t trimmed = 0;
  std::vector<TaggedSentence> out;
  bool inside = false;  // inside a sentence
  int64_t number = 0, first = 0;
  size_t width = 0;  // columns in line `first`; with tags in the last, all lines must have as many
  for (const std::string& line : lines_of(open_text(path, options, notes).text)) {
    ++number;
    if (line.find_first_not_of(" \t") == std::string::npos) {
      inside = false;
      continue;
    }
    if (line[0] == '#' && !inside) continue;
    const std::vector<std::string> columns = columns_of(line, conllu);
    if (conllu && columns[0].find_first_of("-.") != std::string::npos) continue;
    if (first == 0) first = number, width = columns.size();
    check(tag_column != 0 || columns.size() == width, "{}:{}: expected {} columns as in line {}, got {}",
          path, number, width, first, columns.size());
    const auto field = [&](int64_t column, const char* what) -> const std::string& {
      const size_t at = column == 0 ? columns.size() : static_cast<size_t>(column);
      check(at <= columns.size() && !columns[at - 1].empty(),
            "{}:{}: expected a {} in column {}, got {} columns", path, number, what, at, columns.size());
      return columns[at - 1];
    };
    const std::string& word = field(word_column, "word");
    if (!inside) out.emplace_back();
    inside = true;
    out.back().words.push_back(word);
    out.back().lines.push_back(number);
    if (tag_column == kNoTags) continue;
    std::string tag = field(tag_column, "tag");
    trimmed += trim_label(tag);
    check(!tag.empty(), "{}:{}: the tag is empty", path, number);
    out.back().tags.push_back(std::move(tag));
  }
  note_trimmed(path, trimmed, notes);
  check(!out.empty(), "{}: there is no sentence", path);
  return out;
}

}  // namespace qkv
