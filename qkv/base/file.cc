#include "qkv/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "qkv/base/error.h"
#include "qkv/base/mounted_files.h"
#include "qkv/base/unpack.h"

namespace qkv {
namespace fs = std::filesystem;

namespace {

// Makes data written to `path` (a file or a directory) survive a power failure.
void flush_to_disk(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY);
  if (fd < 0) fail("{}: cannot open to flush: {}", path, std::strerror(errno));
  const int rc = ::fsync(fd);
  ::close(fd);
  check(rc == 0, "{}: cannot flush: {}", path, std::strerror(errno));
}

std::string parent_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

}  // namespace

void fail_to_open(const std::string& path, int error) {
  if (error == ENOENT && path.find_first_of("*?[") != std::string::npos)
    fail("{}: no such file (patterns are not expanded; give a list)", path);
  fail("{}: cannot be opened: {}", path, std::strerror(error));
}

std::string read_file(const std::string& path) {
  if (auto mounted = mounted_file(path)) return std::move(*mounted);
  std::error_code ignored;
  check(!fs::is_directory(path, ignored), "{}: is a directory, expected a file", path);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(path.c_str(), "rb"), std::fclose);
  if (in == nullptr) fail_to_open(path, errno);
  std::string contents;
  char part[1 << 16];
  for (size_t n = 0; (n = std::fread(part, 1, sizeof part, in.get())) > 0;) contents.append(part, n);
  if (std::ferror(in.get()) != 0) fail("{}: cannot be read: {}", path, std::strerror(errno));
  return contents;
}

namespace {

// The end of a chain of symbolic links, which need not exist.
std::string link_target(const std::string& path) {
  constexpr int kMostLinks = 40;  // the system's own limit
  fs::path at = path;
  std::error_code error;
  for (int i = 0; fs::is_symlink(at, error); ++i) {
    check(i < kMostLinks, "{}: cannot be written: too many symbolic links", path);
    const fs::path next = fs::read_symlink(at, error);
    if (error) break;
    at = next.is_absolute() ? next : at.parent_path() / next;
  }
  return at.string();
}

void write_whole(const std::string& path, std::string_view contents) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  check(out.good(), "{}: cannot be written: {}", path, std::strerror(errno));
  out.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  out.flush();
  check(out.good(), "{}: cannot be written: {}", path, std::strerror(errno));
}

}  // namespace

void write_file_atomically(const std::string& given, std::string_view contents) {
  std::error_code ignored;
  // A device or a pipe is written directly; no other file may take its name.
  if (fs::exists(given, ignored) && !fs::is_regular_file(given, ignored)) return write_whole(given, contents);
  const std::string path = link_target(given);
  const std::string temporary = path + ".tmp";
  write_whole(temporary, contents);
  flush_to_disk(temporary);
  std::error_code error;
  fs::rename(temporary, path, error);
  if (error) {
    ::unlink(temporary.c_str());
    fail("{}: cannot be written: {}", path, error.message());
  }
  flush_to_disk(parent_of(path));
}

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return mounted_file(path).has_value() || fs::exists(path, ignored);
}

void write_directory_atomically(const std::string& given,
                                const std::function<void(const std::string&)>& fill) {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();  // temporary directory goes beside it
  const std::string temporary = path + ".tmp";
  try {
    fs::remove_all(temporary);
    fs::create_directories(temporary);
    fill(temporary);
    for (const auto& entry : fs::directory_iterator(temporary)) flush_to_disk(entry.path());
    flush_to_disk(temporary);
    if (fs::exists(path)) {
      // One system call swaps the two names: there is no moment without a directory at `path`.
      const int rc = ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE);
      if (rc != 0) {  // some file systems cannot swap; the old one then briefly has another name
        check(errno == EINVAL || errno == ENOSYS, "{}: cannot be replaced: {}", path, std::strerror(errno));
        const std::string old = path + ".old";
        fs::remove_all(old);
        fs::rename(path, old);
        fs::rename(temporary, path);
        fs::remove_all(old);
      }
      fs::remove_all(temporary);
    } else {
      fs::rename(temporary, path);
    }
    flush_to_disk(parent_of(path));
  } catch (const fs::filesystem_error& e) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    fail("{}: cannot be written: {}", path, e.what());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
}

void recover_interrupted_write(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored) && fs::exists(path + ".old", ignored))
    fs::rename(path + ".old", path, ignored);
  fs::remove_all(path + ".old", ignored);
  fs::remove_all(path + ".tmp", ignored);
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY);
  if (fd < 0) fail_to_open(path, errno);
  try {
    auto file = of(fd, path);
    ::close(fd);
    return file;
  } catch (const Error&) {
    ::close(fd);
    throw;
  }
}

std::shared_ptr<const MappedFile> MappedFile::of(int fd, const std::string& name) {
  struct stat info {};
  std::shared_ptr<MappedFile> file(new MappedFile);
  check(::fstat(fd, &info) == 0 && S_ISREG(info.st_mode), "{}: not a regular file", name);
  if (info.st_size == 0) return file;
  void* p = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  check(p != MAP_FAILED, "{}: cannot be mapped: {}", name, std::strerror(errno));
  file->data_ = static_cast<const std::byte*>(p);
  file->size_ = static_cast<size_t>(info.st_size);
  return file;
}

void MappedFile::release(const void* data, size_t size) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page,
                  end = (reinterpret_cast<uintptr_t>(data) + size) / page * page;  // whole pages only
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::string_view without_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

namespace {

// A file's bytes, unchanged.
FileText map_bytes(const std::string& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) {
    const auto file = MappedFile::open(path);
    return {file->text(), file};
  }
  const auto whole = std::make_shared<const std::string>(read_file(path));
  return {*whole, whole};
}

std::string temporary_folder() {
  std::error_code error;
  const fs::path path = fs::temp_directory_path(error);
  return error ? "/tmp" : path.string();
}

}  // namespace

namespace {

// Throws Error if the name ends like that of a packed file but the contents differ.
Packing packing_of_file(const std::string& path, std::string_view bytes) {
  const Packing named = packing_by_name(path), packing = packing_of(bytes);
  check(named == Packing::none || packing == named || bytes.empty(),
        "{}: its name ends like that of a packed file, but it holds no {} data: rename it", path,
        named == Packing::gzip ? "gzip" : "zstd");
  return packing;
}

}  // namespace

std::string read_data_file(const std::string& path) {
  std::string bytes = read_file(path);
  const Packing packing = packing_of_file(path, bytes);
  if (packing == Packing::none) return bytes;
  std::string out;
  unpack(bytes, packing, path, [&](std::string_view part) { out += part; });
  return out;
}

FileText map_text(const std::string& path, const std::string& scratch) {
  FileText file = map_bytes(path);
  const Packing packing = packing_of_file(path, file.text);
  if (packing != Packing::none) {
    ScratchFile unpacked(scratch.empty() ? temporary_folder() : scratch);
    unpack(file.text, packing, path,
           [&](std::string_view part) { unpacked.write(part.data(), part.size()); });
    const auto mapped = unpacked.mapped();
    file = {mapped->text(), mapped};
  }
  return {without_mark(file.text), file.owner};
}

ScratchFile::ScratchFile(const std::string& folder) : folder_(folder) {
  std::string path = folder + "/qkv-scratch-XXXXXX";
  const int fd = ::mkstemp(path.data());
  if (fd < 0) fail("{}: cannot be written: {}", folder, std::strerror(errno));
  ::unlink(path.c_str());
  file_.reset(::fdopen(fd, "w+b"));
  if (file_ == nullptr) ::close(fd);
  check(file_ != nullptr, "{}: cannot be written: {}", folder, std::strerror(errno));
}

void ScratchFile::write(const void* data, size_t size) {
  if (size == 0) return;  // `data` may be null
  if (std::fwrite(data, 1, size, file_.get()) != size)
    fail("{}: cannot be written: {}", folder_, std::strerror(errno));
}

std::shared_ptr<const MappedFile> ScratchFile::mapped() const {
  if (std::fflush(file_.get()) != 0) fail("{}: cannot be written: {}", folder_, std::strerror(errno));
  return MappedFile::of(::fileno(file_.get()), folder_);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace qkv
