#pragma once

// Chunking (section 3): an article longer than the maximal context length is crudely broken into shorter
// chunks.

#include <algorithm>
#include <vector>

#include "formal/notation.h"

namespace qkv::formal {

// x in V*, l_max >= 1 -> consecutive pieces of x that together are x: all of length l_max but the last, which
// may be shorter. The empty sequence has no chunks.
inline std::vector<Tokens> chunks(const Tokens& x, Index l_max) {
  assert(l_max >= 1);
  std::vector<Tokens> pieces;
  for (Index start = 0; start < length(x); start += l_max) {
    const Index end = std::min(start + l_max, length(x));
    pieces.emplace_back(x.begin() + start, x.begin() + end);
  }
  return pieces;
}

}  // namespace qkv::formal
