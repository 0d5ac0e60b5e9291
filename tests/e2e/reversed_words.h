// The pairs that translators learn in these tests.
#pragma once

#include <cstdint>
#include <string>

#include "qkv/base/rng.h"

namespace qkv {

// Words and their reverse, one to five letters of six.
inline std::string reversed_words(uint64_t seed, int count) {
  std::string out = "source\ttarget\n";
  const RandomStream random{seed, 0, 0};
  for (int i = 0; i < count; ++i) {
    std::string word;
    const uint64_t length = 1 + random.below(static_cast<uint64_t>(i) * 8, 5);
    for (uint64_t c = 1; c <= length; ++c)
      word += static_cast<char>('a' + random.below(static_cast<uint64_t>(i) * 8 + c, 6));
    out += word + "\t" + std::string(word.rbegin(), word.rend()) + "\n";
  }
  return out;
}

}  // namespace qkv
