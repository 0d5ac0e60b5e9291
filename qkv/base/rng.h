// Counter-based random numbers: every number is a pure function of (seed, step, site, index). Threads,
// batching and the order of evaluation cannot change it, and nothing needs saving to resume.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace qkv {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): four 32-bit words from
// a 128-bit counter and a 64-bit key.
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Identifies the use of random numbers in a run; streams of different sites never overlap.
struct RandomStream {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t site = 0;

  std::array<uint32_t, 4> words(uint64_t index) const {
    return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                   static_cast<uint32_t>(step), site ^ static_cast<uint32_t>(step >> 32)},
                  {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  }
  uint64_t bits(uint64_t index) const {
    const auto w = words(index);
    return uint64_t{w[1]} << 32 | w[0];
  }
  // Uniform in [0, 1), 53 bits.
  double uniform(uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1p-53; }
  // Uniform in {0, ..., n - 1}. REQUIRES: n > 0.
  uint64_t below(uint64_t index, uint64_t n) const {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(bits(index)) * n) >> 64);
  }
  // Standard normal (Box-Muller).
  double normal(uint64_t index) const {
    const auto w = words(index);
    const double u = (static_cast<double>(w[0]) + 0.5) * 0x1p-32, v = static_cast<double>(w[1]) * 0x1p-32;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
  }
};

// A key for the cheap per-element hash that dropout uses inside SIMD kernels.
struct DropoutKey {
  uint32_t a = 0, b = 0;
  static DropoutKey from(const RandomStream& stream) {
    const auto w = stream.words(0x64726f70);  // "drop": apart from other uses of the same stream
    return {w[0], w[1] | 1};
  }
  // The key of one row (a query, say) of a two-dimensional use.
  DropoutKey row(uint64_t index) const {
    const auto w = philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0}, {a, b});
    return {w[0], w[1] | 1};
  }
};

// 32 well-mixed bits for element `index` (two rounds of multiply-xorshift, keyed). The SIMD kernels compute
// exactly this function.
inline uint32_t dropout_bits(DropoutKey key, uint32_t index) {
  uint32_t h = (index ^ key.a) * 0x9E3779B1u;
  h ^= h >> 16;
  h *= 0x85EBCA6Bu;
  h += key.b;
  h ^= h >> 13;
  h *= 0xC2B2AE35u;
  h ^= h >> 16;
  return h;
}

// An element is kept if its bits are at least this.
inline uint32_t dropout_threshold(float p) {
  return static_cast<uint32_t>(std::min(4294967295.0, static_cast<double>(p) * 4294967296.0));
}

}  // namespace qkv
