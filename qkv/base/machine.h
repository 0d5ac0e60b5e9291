// What the machine has to give.
#pragma once

#include <cstdint>
#include <string>

namespace qkv {

// Bytes of memory that the process can still take without swapping: what the system calls available, within
// the limit of the control group. 0 where the system does not say.
int64_t available_memory();

// Bytes of memory that the machine has; the largest number where the system does not say.
int64_t installed_memory();

// 2.7 GB, 512 MB.
std::string memory_text(double bytes);

// A lock on a folder that other processes see and that ends with the process, however it ends.
class FolderLock {
 public:
  // Throws Error, naming the folder, when another process holds it or it cannot be written.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace qkv
