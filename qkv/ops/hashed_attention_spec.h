// The options of attention by hashes (ops/hashed_attention.h).
#pragma once

#include <cstdint>
#include <vector>

namespace qkv {

// The places of tokens in that order. In each of `rounds`, tokens are sorted by buckets, those of a bucket by
// positions. The sorted rounds, one behind another, are cut into chunks. The queries of a chunk see its keys,
// and those of chunks before and after it; behind the last chunk comes the first. A step of
// more chunks than there are leads to the chunk itself, as in Hugging Face's code.
struct HashedAttention {
  int64_t chunk = 0;              // tokens; a sequence that is no longer is attended to in full
  int64_t before = 1, after = 0;  // chunks that a chunk sees beside itself
  int64_t rounds = 1;
  std::vector<int64_t> buckets =
      {};  // even factors of their number; none: tokens stay in order, in one round
  // Queries see the keys of their own bucket only, and a key that several rounds show counts once (Kitaev et
  // al. 2020, equations 4 to 6). Hugging Face's code has neither rule.
  bool same_bucket = false;
  // Sequences longer than `whole` are filled up to a multiple of this. The tokens that are added have a
  // bucket behind all others, and nobody sees them.
  int64_t multiple = 1, whole = 0;

  // Columns of a round's rotation.
  int64_t columns() const {
    int64_t sum = 0;
    for (const int64_t n : buckets) sum += n / 2;
    return sum;
  }
  bool operator==(const HashedAttention&) const = default;
};

// The factors of a usual number of buckets for sequences of up to `context` tokens, as Hugging Face's code
// chooses them: a power of 2 near 2 context / chunk, and two factors where that is large.
std::vector<int64_t> usual_buckets(int64_t context, int64_t chunk);

}  // namespace qkv
