// Resources of the machine.
#pragma once

#include <cstdint>
#include <string>

namespace qkv {

// Bytes of memory that the process can still allocate without swapping, as reported by the system and
// within the limit of the control group. 0 if unknown.
int64_t available_memory();

// Bytes of memory of the machine; the largest number if unknown.
int64_t installed_memory();

// "2.7 GB", "512 MB".
std::string memory_text(double bytes);

// A lock on a folder that other processes see. It is released when the process ends, for whatever reason.
class FolderLock {
 public:
  // Throws Error naming the folder if another process holds it or it cannot be written.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace qkv
