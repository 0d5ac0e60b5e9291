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

// Throws Error naming the path and why it cannot be opened: `error` is errno.
[[noreturn]] void fail_to_open(const std::string& path, int error);

// The whole file. Throws Error naming the path when it cannot be read.
std::string read_file(const std::string& path);

// The same, unpacked where gzip or zstd packed it (unpack.h).
std::string read_data_file(const std::string& path);

// Replaces `path` in one step: writes beside it, flushes to the disk, renames. A crash leaves the old file.
void write_file_atomically(const std::string& path, std::string_view contents);

// A file mapped read-only into memory; unmapped when the last owner goes.
class MappedFile {
 public:
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

  // These bytes, of a mapped file, take no memory of the process until they are read again.
  static void release(const void* data, size_t size);

 private:
  friend class ScratchFile;
  MappedFile() = default;
  // Of an open file, which may be closed afterwards. `name`: for errors.
  static std::shared_ptr<const MappedFile> of(int fd, const std::string& name);
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A file's text: mapped, or read where it is no regular file (a pipe, for one).
struct FileText {
  std::string_view text;
  std::shared_ptr<const void> owner;
};
// A file that gzip or zstd packed (unpack.h) is unpacked into one without a name, which is mapped; it lies in
// the folder `scratch`, or in that for temporary files. Throws Error naming the path when it cannot be read.
FileText map_text(const std::string& path, const std::string& scratch = "");
// A text without the byte order mark that some editors put before it; map_text() leaves it out.
std::string_view without_mark(std::string_view text);

// A text as a stream, which must not outlive it.
class TextStream : private std::streambuf, public std::istream {
 public:
  explicit TextStream(std::string_view text) : std::istream(static_cast<std::streambuf*>(this)) {
    char* begin = const_cast<char*>(text.data());
    setg(begin, begin, begin + text.size());
  }
};

// A file without a name, for what does not fit into memory: written, then mapped, gone with its last owner.
class ScratchFile {
 public:
  // The file lies in this folder. Throws Error, here and later, where it cannot be written.
  explicit ScratchFile(const std::string& folder);

  void write(const void* data, size_t size);
  // All that was written so far.
  std::shared_ptr<const MappedFile> mapped() const;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string folder_;
  std::unique_ptr<std::FILE, Close> file_;
};

// Whether a file or a folder has this name.
bool file_exists(const std::string& path);

// Builds a directory under a temporary name beside `path`, flushes it and renames it into place: readers see
// the old directory or the new one, never a mixture. `fill` is given the temporary path.
void write_directory_atomically(const std::string& path, const std::function<void(const std::string&)>& fill);

// After a write_directory_atomically(path) that a power failure or a kill ended: brings back what was at
// `path` before where it is under another name, and removes what was half written.
void recover_interrupted_write(const std::string& path);

}  // namespace qkv
