#include "qkv/base/machine.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "qkv/base/error.h"

namespace qkv {
namespace {

// The number in a system file; -1 if it has none ("max") or does not exist.
int64_t number_in(const std::string& path) {
  std::ifstream in(path);
  int64_t n = -1;
  return in >> n ? n : -1;
}

int64_t available_in_system() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("MemAvailable:")) return std::stoll(line.substr(13)) * 1024;
  return 0;
}

}  // namespace

int64_t available_memory() {
  const int64_t system = available_in_system();
  for (const auto& [limit, used] : {std::pair("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
                                    std::pair("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                              "/sys/fs/cgroup/memory/memory.usage_in_bytes")})
    if (const int64_t most = number_in(limit), now = number_in(used); most >= 0 && now >= 0)
      return std::min(system, std::max<int64_t>(0, most - now));
  return system;
}

int64_t installed_memory() {
  const int64_t pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? pages * size : std::numeric_limits<int64_t>::max();
}

std::string memory_text(double bytes) {
  return bytes >= 1e9 ? fmt::format("{:.1f} GB", bytes / 1e9) : fmt::format("{:.0f} MB", bytes / 1e6);
}

FolderLock::FolderLock(const std::string& folder) {
  const std::string path = folder + "/.lock";
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  check(fd_ >= 0, "{}: cannot be written: {}", path, std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  ::close(fd_);
  check(error == EWOULDBLOCK, "{}: cannot be locked: {}", path, std::strerror(error));
  fail("{}: another run is writing there: wait for it, stop it, or choose another train.out", folder);
}

FolderLock::~FolderLock() {
  ::close(fd_);
}

}  // namespace qkv
