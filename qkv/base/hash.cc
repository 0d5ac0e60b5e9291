#include "qkv/base/hash.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL  // header only
#include <xxhash.h>

namespace qkv {

std::string hash_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

}  // namespace qkv
