#include "qkv/data/text_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>

#include "qkv/base/error.h"
#include "qkv/base/unpack.h"
#include "qkv/text/unicode.h"

namespace qkv {
namespace {

constexpr size_t kLookedAt = 4096;  // bytes used to detect the kind of a file

// Position of the first byte that is 0 or not UTF-8, or npos.
size_t first_bad_byte(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080, kOnes = 0x0101010101010101;
  for (size_t at = 0; at < text.size();) {
    uint64_t eight = 0;
    if (at + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if (((eight | (eight - kOnes)) & kHighBits) == 0) {  // ASCII without a 0
        at += sizeof eight;
        continue;
      }
    }
    const text::Character c = text::character_at(text, at);
    if (c.codepoint <= 0) return at;
    at += c.length;
  }
  return std::string_view::npos;
}

// The kind of a file by its first bytes; empty if unknown.
std::string kind_of_file(std::string_view text) {
  constexpr std::pair<std::string_view, const char*> kKinds[] = {
      {std::string_view("\xFF\xFE\0\0", 4), "UTF-32: convert it with iconv -f UTF-32 -t UTF-8"},
      {std::string_view("\0\0\xFE\xFF", 4), "UTF-32: convert it with iconv -f UTF-32 -t UTF-8"},
      {"\xFF\xFE", "UTF-16: convert it with iconv -f UTF-16 -t UTF-8"},
      {"\xFE\xFF", "UTF-16: convert it with iconv -f UTF-16 -t UTF-8"},
      {std::string_view("\xFD"
                        "7zXZ\0",
                        6),
       "packed by xz: unpack it with xz -d"},
      {"BZh", "packed by bzip2: unpack it with bzip2 -d"},
      {"PK\x03\x04", "a zip archive (as .docx and .xlsx are): save its text as a file of its own"},
      {"%PDF-", "a PDF: save its text as a file of its own"}};
  for (const auto& [begin, kind] : kKinds)
    if (text.starts_with(begin)) return kind;
  // In UTF-16 every second byte of English text is 0.
  const std::string_view start = text.substr(0, kLookedAt);
  size_t zeros[2] = {0, 0};
  for (size_t i = 0; i < start.size(); ++i) zeros[i % 2] += start[i] == '\0';
  for (const size_t odd : {0, 1})
    if (zeros[odd] * 10 > start.size() * 3 && zeros[1 - odd] * 50 < start.size())
      return fmt::format("UTF-16: convert it with iconv -f UTF-16{} -t UTF-8", odd == 1 ? "LE" : "BE");
  return "";
}

// True if the bytes are unlikely to be text in any code page: many are control characters.
bool looks_binary(std::string_view bytes) {
  const auto controls = std::count_if(bytes.begin(), bytes.end(), [](char c) {
    const auto u = static_cast<unsigned char>(c);
    return u < 0x20 && u != '\t' && u != '\n' && u != '\r' && u != '\f' && u != 0x1B;
  });
  return static_cast<size_t>(controls) * 20 > bytes.size();
}

// True if most characters beyond ASCII are valid UTF-8, so that only some bytes are damaged.
bool is_mostly_utf8(std::string_view bytes) {
  int64_t good = 0, bad = 0;
  for (size_t at = 0; at < bytes.size();) {
    const text::Character c = text::character_at(bytes, at);
    good += c.length > 1;
    bad += !c.valid();
    at += c.length;
  }
  return good > bad;
}

std::string lower(std::string_view s) {
  std::string out(s);
  std::ranges::transform(out, out.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return out;
}

void add_note(Notes* notes, std::string note) {
  if (notes != nullptr && std::ranges::find(*notes, note) == notes->end()) notes->push_back(std::move(note));
}

}  // namespace

const std::vector<std::string>& file_format_names() {
  static const std::vector<std::string> names = {"text", "tsv", "csv", "jsonl", "conll", "conllu"};
  return names;
}

FileFormat format_of(std::string_view path, const FileOptions& options) {
  const auto named = [](std::string_view name) {
    const auto& names = file_format_names();
    return std::ranges::find(names, name) - names.begin();
  };
  const auto formats = std::ssize(file_format_names());
  if (!options.format.empty() && options.format != "auto") {
    const auto format = named(options.format);
    check(format < formats, "format: expected one of auto, {}, got '{}'",
          fmt::join(file_format_names(), ", "), options.format);
    return static_cast<FileFormat>(format);
  }
  const std::string name = lower(without_packing(path));
  const size_t dot = name.rfind('.');
  const std::string extension = dot == std::string::npos ? "" : name.substr(dot + 1);
  if (extension != "text" && named(extension) < formats) return static_cast<FileFormat>(named(extension));
  return options.delimiter.empty() ? FileFormat::text : FileFormat::csv;
}

bool is_of_rows(std::string_view path, const FileOptions& options) {
  const FileFormat format = format_of(path, options);
  return format == FileFormat::tsv || format == FileFormat::csv || format == FileFormat::jsonl;
}

std::string problem_of_text(std::string_view text, const std::string& path) {
  const size_t at = first_bad_byte(text);
  if (at == std::string_view::npos) return "";
  if (const std::string kind = kind_of_file(text); !kind.empty())
    return fmt::format("{}: this file is {}", path, kind);
  const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
  const std::string_view around = text.substr(at - std::min(at, kLookedAt / 2), kLookedAt);
  const std::string place =
      fmt::format("{}:{}: byte 0x{:02X} at offset {}", path, line, static_cast<unsigned char>(text[at]), at);
  if (text[at] == '\0') return place + ": this is binary data, not text";
  if (looks_binary(around)) return place + " is not UTF-8: this looks like binary data, not text";
  return fmt::format("{} is not UTF-8: convert it with iconv {} -t UTF-8", place,
                     is_mostly_utf8(around) ? "-c -f UTF-8" : "-f ISO-8859-1");
}

namespace {

// Sets `is_text` to true if the file is UTF-8 text.
FileText open_any(const std::string& path, const FileOptions& options, Notes* notes, bool& is_text) {
  FileText file = map_text(path, options.scratch);
  const std::string problem = problem_of_text(file.text, path);
  is_text = problem.empty();
  if (is_text) return file;
  check(options.any_bytes, "{}", problem);
  add_note(notes, fmt::format("warning: {}; the tokenizer takes its bytes as they are", problem));
  return file;
}

}  // namespace

FileText open_text(const std::string& path, const FileOptions& options, Notes* notes) {
  bool is_text = false;
  return open_any(path, options, notes, is_text);
}

FileText open_plain_text(const std::string& path, const FileOptions& options, Notes* notes) {
  bool is_text = false;
  FileText file = open_any(path, options, notes, is_text);
  size_t at = is_text && !options.keep_carriage_returns ? file.text.find("\r\n") : std::string_view::npos;
  if (at == std::string_view::npos) return file;
  namespace fs = std::filesystem;
  ScratchFile out(options.scratch.empty() ? fs::temp_directory_path().string() : options.scratch);
  for (std::string_view rest = file.text;; at = rest.find("\r\n")) {
    out.write(rest.data(), std::min(at, rest.size()));
    if (at == std::string_view::npos) break;
    rest.remove_prefix(at + 1);
  }
  note_line_ends(path, notes);
  const auto mapped = out.mapped();
  return {mapped->text(), mapped};
}

void note_line_ends(const std::string& path, Notes* notes) {
  add_note(notes, fmt::format("note: {}: Windows line ends (\\r\\n) are read as \\n "
                              "(data.keep_carriage_returns = true keeps them)",
                              path));
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::string without_carriage_returns(std::string text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') out += text[i];
  return out;
}

}  // namespace qkv
