// Memory of tensors: owned (pooled) or borrowed from a mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace qkv {

// 64-byte aligned memory. Freed blocks are kept for the next tensor of about their size, so that a training
// step allocates nothing after the first. If all memory held would exceed the peak in use by a quarter and
// 64 MiB, the blocks that were free longest go back to the system.
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
  size_t block_ = 0;     // bytes of the pooled block, at least capacity_
  std::shared_ptr<const void> owner_;
};

// Memory of all tensors of the program, in bytes.
struct MemoryUse {
  size_t in_use;  // bytes in live tensors
  size_t peak;    // the most in use since reset_peak_memory()
  size_t pooled;  // bytes kept for reuse
};
// The present use. The peak counts from the last call of reset_peak_memory().
MemoryUse memory_use();
void reset_peak_memory();
// Returns pooled blocks to the system.
void trim_memory_pool();

}  // namespace qkv
