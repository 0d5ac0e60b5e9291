#include "qkv/tensor/release.h"

#include <sys/mman.h>
#include <unistd.h>

namespace qkv {

void release_memory(Tensor& x, int64_t begin, int64_t end) {
  const auto bytes = x.mutable_value_bytes();
  check(0 <= begin && begin <= end && end <= x.count(), "release_memory: [{}, {}) of {}", begin, end, x);
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto at = [&](int64_t i) {
    return reinterpret_cast<uintptr_t>(bytes.data()) + static_cast<uintptr_t>(i * size_of(x.dtype()));
  };
  const uintptr_t first = (at(begin) + page - 1) / page * page, last = at(end) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace qkv
