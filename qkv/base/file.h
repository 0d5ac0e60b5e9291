// Files as byte strings: read whole, written atomically, mapped.
#pragma once

#include <cstddef>
#include <cstdio>
#include <functional>
#include <istream>
#include <memory>
#include <streambuf>
#include <string>
#include <string_view>

namespace qkv {

// Throws Error naming the path and the reason why it cannot be opened. `error`: errno.
[[noreturn]] void fail_to_open(const std::string& path, int error);

// Reads the whole file. Throws Error naming the path if it cannot be read.
std::string read_file(const std::string& path);

// The same, decompressed if it is a gzip or zstd file (unpack.h).
std::string read_data_file(const std::string& path);

// Replaces `path` in one step: writes a file beside it, flushes it to disk and renames it. A crash leaves
// the old file.
void write_file_atomically(const std::string& path, std::string_view contents);

// A file mapped read-only into memory; unmapped with its last owner.
class MappedFile {
 public:
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

  // Frees the memory of these bytes of a mapped file until they are read again.
  static void release(const void* data, size_t size);

 private:
  friend class ScratchFile;
  MappedFile() = default;
  // Maps an open file, which may be closed afterwards. `name`: for errors.
  static std::shared_ptr<const MappedFile> of(int fd, const std::string& name);
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A file's text: mapped, or read if it is not a regular file (a pipe, for example).
struct FileText {
  std::string_view text;
  std::shared_ptr<const void> owner;
};
// Maps a file. A gzip or zstd file (unpack.h) is first decompressed into an unnamed file in the folder
// `scratch`, or in that for temporary files. Throws Error naming the path if it cannot be read.
FileText map_text(const std::string& path, const std::string& scratch = "");
// The text without the byte order mark that some editors add; map_text() removes it.
std::string_view without_mark(std::string_view text);

// A stream of a text, which must outlive it.
class TextStream : private std::streambuf, public std::istream {
 public:
  explicit TextStream(std::string_view text) : std::istream(static_cast<std::streambuf*>(this)) {
    char* begin = const_cast<char*>(text.data());
    setg(begin, begin, begin + text.size());
  }
};

// An unnamed file for data that does not fit into memory: written, then mapped, deleted with its last
// owner.
class ScratchFile {
 public:
  // Creates the file in this folder. Throws Error, here and later, if it cannot be written.
  explicit ScratchFile(const std::string& folder);

  void write(const void* data, size_t size);
  // Maps all bytes written so far.
  std::shared_ptr<const MappedFile> mapped() const;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string folder_;
  std::unique_ptr<std::FILE, Close> file_;
};

// True if a file or a folder has this name.
bool file_exists(const std::string& path);

// Builds a directory under a temporary name beside `path`, flushes it and renames it into place. Readers
// see the old directory or the new one, never a mixture. `fill` gets the temporary path.
void write_directory_atomically(const std::string& path, const std::function<void(const std::string&)>& fill);

// Cleans up after a write_directory_atomically(path) that a power failure or a kill interrupted. Restores
// the old `path` if it is under another name, and removes incomplete files.
void recover_interrupted_write(const std::string& path);

}  // namespace qkv
