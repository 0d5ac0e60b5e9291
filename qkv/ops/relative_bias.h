// Biases by distance, added to the scores instead of position embeddings: T5's, one number per distance,
// and ALiBi's.
#pragma once

#include <span>

#include "qkv/tensor/tensor.h"

namespace qkv {

// The buckets of distances (Raffel et al. 2020, section 2.1). Small distances have one each, larger ones
// share buckets that grow by a factor, and all beyond `longest` share the last.
struct DistanceBuckets {
  int64_t count = 0;
  int64_t longest = 128;
  bool bidirectional = true;  // half of the buckets are for keys after the query; else these share bucket 0
  bool each = false;          // instead each distance below `longest` has its own bucket: a Toeplitz matrix

  // One bucket for each distance below `longest`; larger ones share the last. Keys after the query have
  // their own buckets if `bidirectional`.
  static DistanceBuckets of_each(int64_t longest, bool bidirectional) {
    return {bidirectional ? 2 * longest - 1 : longest, longest, bidirectional, true};
  }
  // The bucket of a key `distance` places after the query (negative: before it).
  int64_t of(int64_t distance) const;
  bool operator==(const DistanceBuckets&) const = default;
};

// table f32 [buckets, heads] -> f32 [heads, 2 reach + 1]: the score term of attention() for distances up to
// `reach`.
Tensor relative_bias(const Tensor& table, const DistanceBuckets& buckets, int64_t reach);

// f32 [heads, 2 reach + 1]: minus a slope for each head times the distance (Press et al. 2022, section 3:
// ALiBi). For a power of two heads the slopes are 2^(-8 h / heads), h from 1. For other numbers they are
// those of the power of two below, then every second one, from h = 1, of twice as many heads. With
// `evens_first` (MPT) all are of the power of two above: those of even h, then those of odd h. `scales`:
// factors on each head's scores after the bias was added (Falcon, whose slopes are bf16 numbers); empty:
// the bias is added last. `is_signed`: scores of keys after the query rise with the distance instead.
Tensor alibi(int64_t heads, bool evens_first, int64_t reach, std::span<const float> scales = {},
             bool is_signed = false);

}  // namespace qkv
