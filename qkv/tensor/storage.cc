#include "qkv/tensor/storage.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "qkv/base/error.h"

namespace qkv {
namespace {

// Under AddressSanitizer nothing is rounded or kept, so that it sees every step outside and every use after
// free.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kExact = true;
#else
constexpr bool kExact = false;
#endif
constexpr size_t kHugePage = size_t{2} << 20;

// Rounds up to an eighth of a power of two: at most 12.5% is wasted.
size_t size_class(size_t bytes) {
  if (kExact) return std::max<size_t>(bytes, 1);
  if (bytes <= 512) return (bytes + 63) / 64 * 64;
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

struct Pool {
  std::mutex mutex;
  std::map<size_t, std::vector<std::byte*>> free;
  MemoryUse use{};
};

Pool& pool() {
  static Pool* p = new Pool;  // outlives tensors in static storage
  return *p;
}

std::byte* take(size_t capacity) {
  Pool& p = pool();
  {
    const std::lock_guard lock(p.mutex);
    p.use.in_use += capacity;
    p.use.peak = std::max(p.use.peak, p.use.in_use);
    if (auto it = p.free.find(capacity); it != p.free.end() && !it->second.empty()) {
      std::byte* block = it->second.back();
      it->second.pop_back();
      p.use.pooled -= capacity;
      return block;
    }
  }
  const size_t alignment = capacity >= kHugePage ? kHugePage : 64;
  void* memory = nullptr;
  if (::posix_memalign(&memory, alignment, capacity) != 0) {
    const std::lock_guard lock(p.mutex);
    p.use.in_use -= capacity;
    fail("out of memory: {} bytes wanted", capacity);
  }
  auto* block = static_cast<std::byte*>(memory);
  if (capacity >= kHugePage) ::madvise(block, capacity, MADV_HUGEPAGE);  // fewer page walks; advice only
  return block;
}

void give_back(std::byte* block, size_t capacity) {
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  p.use.in_use -= capacity;
  if (kExact) return std::free(block);
  p.use.pooled += capacity;
  p.free[capacity].push_back(block);
}

}  // namespace

std::shared_ptr<Storage> Storage::allocate(size_t bytes) {
  std::shared_ptr<Storage> s(new Storage);
  const size_t capacity = size_class(std::max<size_t>(bytes, 1));
  s->data_ = take(capacity);
  s->capacity_ = capacity;  // not before: the destructor would give back a block that there is not
  s->size_ = bytes;
  return s;
}

std::shared_ptr<Storage> Storage::borrow(const std::byte* data, size_t bytes,
                                         std::shared_ptr<const void> owner) {
  std::shared_ptr<Storage> s(new Storage);
  s->data_ = const_cast<std::byte*>(data);
  s->size_ = bytes;
  s->owner_ = std::move(owner);
  return s;
}

Storage::~Storage() {
  if (capacity_ != 0) give_back(data_, capacity_);
}

MemoryUse memory_use() {
  const std::lock_guard lock(pool().mutex);
  return pool().use;
}

void reset_peak_memory() {
  const std::lock_guard lock(pool().mutex);
  pool().use.peak = pool().use.in_use;
}

void trim_memory_pool() {
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  for (auto& [capacity, blocks] : p.free)
    for (std::byte* block : blocks) std::free(block);
  p.free.clear();
  p.use.pooled = 0;
}

}  // namespace qkv
