#include "qkv/data/token_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "qkv/base/file.h"

namespace qkv {

TokenFile::TokenFile(const std::string& folder)
    : folder_(folder), tokens_(unnamed_file()), starts_(unnamed_file()) {
  write<int64_t>(starts_, std::span(&start_, 1));
}

TokenFile::File TokenFile::unnamed_file() const {
  std::string path = folder_ + "/qkv-tokens-XXXXXX";
  const int fd = ::mkstemp(path.data());
  check(fd >= 0, "{}: tokens cannot be written there: {}", folder_, std::strerror(errno));
  ::unlink(path.c_str());
  std::FILE* file = ::fdopen(fd, "w+b");
  if (file == nullptr) ::close(fd);
  check(file != nullptr, "{}: tokens cannot be written there: {}", folder_, std::strerror(errno));
  return File(file);
}

template <typename T>
void TokenFile::write(const File& file, std::span<const T> values) const {
  check(std::fwrite(values.data(), sizeof(T), values.size(), file.get()) == values.size(),
        "{}: tokens cannot be written there: {}", folder_, std::strerror(errno));
}

void TokenFile::append(std::span<const int32_t> tokens) {
  write(tokens_, tokens);
  size_ += std::ssize(tokens);
}

void TokenFile::end_document() {
  if (size_ == start_) return;
  start_ = size_;
  ++documents_;
  write<int64_t>(starts_, std::span(&start_, 1));
}

template <typename T>
Tensor TokenFile::mapped(const File& file, int64_t count) const {
  check(std::fflush(file.get()) == 0, "{}: tokens cannot be written there: {}", folder_,
        std::strerror(errno));
  const auto map = MappedFile::of(::fileno(file.get()), folder_);
  assert(map->size() == static_cast<size_t>(count) * sizeof(T));
  return Tensor::borrow({count}, dtype_of<T>, map->data(), map);
}

TokenStream TokenFile::stream() {
  assert(start_ == size_);
  return {mapped<int32_t>(tokens_, size_), mapped<int64_t>(starts_, documents_ + 1)};
}

}  // namespace qkv
