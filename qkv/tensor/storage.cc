#include "qkv/tensor/storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <new>

#include "qkv/base/error.h"
#include "qkv/base/machine.h"

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

// A free block, and when it became so.
struct FreeBlock {
  std::byte* data;
  uint64_t since;
};

using FreeLists = std::map<size_t, std::deque<FreeBlock>>;  // by size, the latest last

struct Pool {
  std::mutex mutex;
  FreeLists free;
  MemoryUse use{};
  size_t surplus = 0;  // bytes of live blocks beyond what they were asked for
  uint64_t clock = 0;  // blocks that became free so far
};

Pool& pool() {
  static Pool* p = new Pool;  // outlives tensors in static storage
  return *p;
}

// Sizes that change from step to step (the rows of a batch that its finished texts leave) must not each keep
// blocks of their own.
size_t most_held(const Pool& p) {
  return p.use.peak + p.use.peak / 4 + (size_t{64} << 20);
}

// Returns the blocks that were free longest until what is held is not too much.
void make_room(Pool& p) {
  while (p.use.pooled > 0 && p.use.in_use + p.surplus + p.use.pooled > most_held(p)) {
    FreeLists::value_type* oldest = nullptr;
    for (auto& list : p.free)
      if (!list.second.empty() &&
          (oldest == nullptr || list.second.front().since < oldest->second.front().since))
        oldest = &list;
    std::free(oldest->second.front().data);
    oldest->second.pop_front();
    p.use.pooled -= oldest->first;
  }
}

struct Block {
  std::byte* data;
  size_t size;
};

// The latest of the smallest blocks that are free and large enough, if it wastes no more than a quarter.
Block take_free(Pool& p, size_t capacity) {
  for (auto it = p.free.lower_bound(capacity); it != p.free.end() && it->first <= capacity + capacity / 4;
       ++it) {
    if (it->second.empty()) continue;
    const Block block{it->second.back().data, it->first};
    it->second.pop_back();
    p.use.pooled -= it->first;
    return block;
  }
  return {};
}

void count(Pool& p, size_t capacity, size_t block) {
  p.use.in_use += capacity;
  p.surplus += block - capacity;
  p.use.peak = std::max(p.use.peak, p.use.in_use);
}

Block take(size_t capacity) {
  Pool& p = pool();
  {
    const std::lock_guard lock(p.mutex);
    if (const Block block = take_free(p, capacity); block.data != nullptr) {
      count(p, capacity, block.size);
      return block;
    }
  }
  // The system would promise more than there is, and end the process when it is written to.
  static const auto kInstalled = static_cast<size_t>(installed_memory());
  if (capacity > kInstalled)
    fail("out of memory: {} wanted, the machine has {}", memory_text(static_cast<double>(capacity)),
         memory_text(static_cast<double>(kInstalled)));
  const size_t alignment = capacity >= kHugePage ? kHugePage : 64;
  void* memory = nullptr;
  if (::posix_memalign(&memory, alignment, capacity) != 0) fail("out of memory: {} bytes wanted", capacity);
  if (capacity >= kHugePage) ::madvise(memory, capacity, MADV_HUGEPAGE);  // fewer page walks; advice only
  const std::lock_guard lock(p.mutex);
  count(p, capacity, capacity);
  make_room(p);  // the new block takes no memory before it is written to
  return {static_cast<std::byte*>(memory), capacity};
}

void give_back(Block block, size_t capacity) {
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  p.use.in_use -= capacity;
  p.surplus -= block.size - capacity;
  if (kExact) return std::free(block.data);
  p.use.pooled += block.size;
  p.free[block.size].push_back({block.data, p.clock++});
}

}  // namespace

std::shared_ptr<Storage> Storage::allocate(size_t bytes) {
  std::shared_ptr<Storage> s(new Storage);
  const size_t capacity = size_class(std::max<size_t>(bytes, 1));
  const Block block = take(capacity);
  s->data_ = block.data;
  s->block_ = block.size;
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
  if (capacity_ != 0) give_back({data_, block_}, capacity_);
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
  for (auto& [size, blocks] : p.free)
    for (const FreeBlock& block : blocks) std::free(block.data);
  p.free.clear();
  p.use.pooled = 0;
}

}  // namespace qkv
