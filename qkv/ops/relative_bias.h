// Biases by distance, added to the scores instead of positions: T5's, a number for each distance, ALiBi's.
#pragma once

#include <span>

#include "qkv/tensor/tensor.h"

namespace qkv {

// How distances fall into buckets (Raffel et al. 2020, section 2.1): small ones into one each, larger ones
// into buckets that grow by a factor, all beyond `longest` into the last.
struct DistanceBuckets {
  int64_t count = 0;
  int64_t longest = 128;
  bool bidirectional = true;  // half of the buckets are of keys behind the query; else these share bucket 0
  bool each = false;          // instead every distance below `longest` has its own: a Toeplitz matrix

  // One bucket for each distance below `longest`, the last for all others; of keys behind the query, too.
  static DistanceBuckets of_each(int64_t longest, bool bidirectional) {
    return {bidirectional ? 2 * longest - 1 : longest, longest, bidirectional, true};
  }
  // Of a key so many places behind the query (before it: negative).
  int64_t of(int64_t distance) const;
  bool operator==(const DistanceBuckets&) const = default;
};

// table f32 [buckets, heads] -> f32 [heads, 2 reach + 1]: the score term of attention() for distances up to
// `reach`.
Tensor relative_bias(const Tensor& table, const DistanceBuckets& buckets, int64_t reach);

// f32 [heads, 2 reach + 1]: minus a slope for each head times the distance (Press et al. 2022, section 3:
// ALiBi). The slopes of a power of two heads are 2^(-8 h / heads), h from 1; of another number those of the
// power of two below and every second one, from h = 1, of twice as many heads. With `evens_first` (MPT) all
// are of the power of two above: those of even h, then those of odd h. `scales`: what each head's scores
// are multiplied by once the bias was added (Falcon, whose slopes are bf16 numbers); none: the bias is added
// last.
Tensor alibi(int64_t heads, bool evens_first, int64_t reach, std::span<const float> scales = {});

}  // namespace qkv
