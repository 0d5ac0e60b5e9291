// Small matrix products on the calling thread.
#pragma once

#include <cstdint>

namespace qkv {

// C [m, n] = A [m, k] B [k, n], all f32 and without gaps; added to C where `accumulate`. a_transposed: A is
// stored as [k, m]; b_transposed: B as [n, k]. The bits of an element of C depend on its row of A and its
// column of B alone.
struct ThreadProduct {
  int64_t m, n, k;
  const float* a;
  const float* b;
  float* c;
  bool a_transposed = false, b_transposed = false, accumulate = false;
};
void multiply(const ThreadProduct&);

}  // namespace qkv
