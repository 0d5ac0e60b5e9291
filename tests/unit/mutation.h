// Seeded damage to a text, for running fuzz targets without a fuzzer.
#pragma once

#include <algorithm>
#include <random>
#include <span>
#include <string>

namespace qkv::testing {

// One to three times: another byte, a cut, a repetition, one of `pieces` in place of some bytes, or
// `replace_value`, which knows the format: (text, from where, a piece) puts the piece in the place of a whole
// value.
template <typename ReplaceValue>
std::string mutate(std::string s, std::mt19937& rng, std::span<const char* const> pieces,
                   const ReplaceValue& replace_value) {
  for (size_t n = 1 + rng() % 3; n > 0; --n) {
    const size_t at = rng() % s.size(), length = std::min<size_t>(rng() % 12, s.size() - at);
    switch (rng() % 5) {
      case 0:
        s[at] = static_cast<char>(rng());
        break;
      case 1:
        s.erase(at, length);
        break;
      case 2:
        s.insert(at, s.substr(rng() % s.size(), rng() % 60));
        break;
      case 3:
        s.replace(at, length, pieces[rng() % pieces.size()]);
        break;
      default:
        replace_value(s, at, pieces[rng() % pieces.size()]);
    }
    if (s.empty()) s.push_back(' ');
  }
  return s;
}

}  // namespace qkv::testing
