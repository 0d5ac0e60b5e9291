// Files of data as people have them: packed, with Windows line ends, now and then not even text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/base/file.h"

namespace qkv {

// Kinds of contents. conll: a tagged word a line, in columns; conllu: the same in its ten columns.
enum class FileFormat : uint8_t { text, tsv, csv, jsonl, conll, conllu };
// The formats by their names, which data.format takes.
const std::vector<std::string>& file_format_names();

// Lines for people about what was read: "a.txt: ...".
using Notes = std::vector<std::string>;

// How a file is read.
struct FileOptions {
  std::vector<std::string> columns = {};  // names of the columns of rows without a header
  std::string format = {};                // by its name; empty or "auto": by the file's name
  std::string delimiter = {};             // of .csv and .tsv, where it is another: one character
  bool keep_carriage_returns = false;     // "\r\n" stays in texts, and does not become "\n"
  bool any_bytes = false;                 // bytes that are no UTF-8 text are taken, with a note
  std::string scratch = {};               // folder for what is unpacked; empty: the system's
};

// By the options, or else by the name's end, in capitals or not, behind which .gz or .zst may stand. A file
// that only has a delimiter is one of rows.
FileFormat format_of(std::string_view path, const FileOptions& options = {});
// True where a file holds rows.
bool is_of_rows(std::string_view path, const FileOptions& options = {});

// The file's text, unpacked, without a byte order mark. Throws Error naming the file, the place and the cure
// where it is no UTF-8 text: UTF-16, another code page, binary data; with options.any_bytes that is a note.
FileText open_text(const std::string& path, const FileOptions& options = {}, Notes* notes = nullptr);

// True where a text is empty or has white space of ASCII only.
bool is_blank(std::string_view text);

// A text whose lines end with "\n" alone.
std::string without_carriage_returns(std::string text);

// The problem of `text` as UTF-8 text, and its cure: "a.txt:1: byte 0xE9 at offset 3 ..."; empty:
// nothing.
std::string problem_of_text(std::string_view text, const std::string& path);

// The same of texts whose lines are a part of what is learnt: with "\n" in place of "\r\n" unless the options
// keep it, which a note tells. Data that are no text stay as they are.
FileText open_plain_text(const std::string& path, const FileOptions& options = {}, Notes* notes = nullptr);
// Says that line ends were changed.
void note_line_ends(const std::string& path, Notes* notes);

}  // namespace qkv
