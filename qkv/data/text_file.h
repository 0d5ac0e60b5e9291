// Data files as users have them: compressed, with Windows line ends, sometimes not even text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/base/file.h"

namespace qkv {

// Formats of data. conll: a tagged word on each line, in columns; conllu: the same in its ten columns.
enum class FileFormat : uint8_t { text, tsv, csv, jsonl, conll, conllu };
// The names of the formats, for data.format.
const std::vector<std::string>& file_format_names();

// Messages for the user about the files read: "a.txt: ...".
using Notes = std::vector<std::string>;

// How a file is read.
struct FileOptions {
  std::vector<std::string> columns = {};  // names of the columns of a file without a header
  std::string format = {};             // name of the format; empty or "auto": determined by the file's name
  std::string delimiter = {};          // delimiter of .csv and .tsv files, one character; empty: the default
  bool keep_carriage_returns = false;  // keep "\r\n" in texts instead of replacing it with "\n"
  bool any_bytes = false;              // accept bytes that are not UTF-8 text, with a note
  std::string scratch = {};            // folder for unpacked files; empty: the system's
  // Columns of .jsonl files that must be texts or numbers; other values of other columns become their JSON
  // text. Empty: all must be.
  std::vector<std::string> text_columns = {};
};

// The format of the options, or else of the name's extension, case-insensitive and before any .gz or .zst.
// A file with no known extension has rows (csv) if the options have a delimiter.
FileFormat format_of(std::string_view path, const FileOptions& options = {});
// True if a file has rows.
bool is_of_rows(std::string_view path, const FileOptions& options = {});

// The file's text, unpacked, without a byte order mark. Throws Error naming the file, the place and the
// remedy if it is not UTF-8 text: UTF-16, another code page, binary data. With options.any_bytes this
// becomes a note.
FileText open_text(const std::string& path, const FileOptions& options = {}, Notes* notes = nullptr);

// True if a text is empty or has only spaces, tabs and line ends.
bool is_blank(std::string_view text);

// The text with "\r\n" replaced by "\n".
std::string without_carriage_returns(std::string text);

// The reason why `text` is not UTF-8 text, and the remedy: "a.txt:1: byte 0xE9 at offset 3 ..."; empty if
// there is none.
std::string problem_of_text(std::string_view text, const std::string& path);

// Like open_text(), for texts whose line ends are learnt. Replaces "\r\n" with "\n" and adds a note, unless
// the options keep it. Data that is not text stays unchanged.
FileText open_plain_text(const std::string& path, const FileOptions& options = {}, Notes* notes = nullptr);
// Adds a note that line ends were changed.
void note_line_ends(const std::string& path, Notes* notes);

}  // namespace qkv
