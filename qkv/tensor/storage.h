// Bytes that tensors lie in: owned (pooled) or borrowed from a mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace qkv {

// 64-byte aligned memory. Freed blocks are kept for the next tensor of about their size, so that a training
// step allocates nothing after the first; those that were free longest go back to the system where all that
// is held would be a quarter more than the peak of what was in use.
class Storage {
 public:
  // Uninitialised.
  static std::shared_ptr<Storage> allocate(size_t bytes);
  // Memory that `owner` keeps alive; read-only by contract.
  static std::shared_ptr<Storage> borrow(const std::byte* data, size_t bytes,
                                         std::shared_ptr<const void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool read_only() const { return owner_ != nullptr; }

 private:
  Storage() = default;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;  // bytes that count as in use, 0 when borrowed
  size_t block_ = 0;     // of the pooled block: no fewer
  std::shared_ptr<const void> owner_;
};

// Memory of all tensors of the program, in bytes.
struct MemoryUse {
  size_t in_use;  // bytes in live tensors
  size_t peak;    // the most there were since reset_peak_memory()
  size_t pooled;  // bytes kept for reuse
};
// The use now; the peak is counted from the last call of reset_peak_memory().
MemoryUse memory_use();
void reset_peak_memory();
// Returns pooled blocks to the system.
void trim_memory_pool();

}  // namespace qkv
