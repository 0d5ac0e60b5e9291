#include "qkv/base/mounted_files.h"

#include <mutex>
#include <utility>

namespace qkv {
namespace {

struct Mounts {
  std::mutex mutex;
  std::map<std::string, std::map<std::string, std::string>> folders;
};

Mounts& mounts() {
  static Mounts all;
  return all;
}

}  // namespace

void mount_files(const std::string& path, std::map<std::string, std::string> files) {
  const std::lock_guard lock(mounts().mutex);
  mounts().folders[path] = std::move(files);
}

bool is_mounted(const std::string& path) {
  const std::lock_guard lock(mounts().mutex);
  return mounts().folders.contains(path);
}

std::optional<std::string> mounted_file(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return std::nullopt;
  const std::lock_guard lock(mounts().mutex);
  const auto folder = mounts().folders.find(path.substr(0, slash));
  if (folder == mounts().folders.end()) return std::nullopt;
  const auto file = folder->second.find(path.substr(slash + 1));
  if (file == folder->second.end()) return std::nullopt;
  return file->second;
}

}  // namespace qkv
