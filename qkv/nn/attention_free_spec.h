// The options of the attention-free transformer (nn/attention_free.h).
#pragma once

#include <cstdint>

namespace qkv {

// The weights of positions (Zhai et al. 2021): `full` has one for each pair of them; `local` as well, but
// those of distances from the window on are 0; `simple` has none; `conv` has one for each head and distance
// below the window.
enum class AftForm : uint8_t { full, local, simple, conv };

struct AftSpec {
  AftForm form = AftForm::full;
  int64_t window = 32;  // for local and conv
  int64_t rank = 0;     // full and local: weights are products of vectors of this size; 0: numbers
  int64_t heads = 4;    // for conv

  bool operator==(const AftSpec&) const = default;
};

}  // namespace qkv
