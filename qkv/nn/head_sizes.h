// Heads of different sizes in one layer. The kernels take heads of one size, so each head is padded with
// zeros to the width of the widest. Zeros add nothing to a score and are left out of the output.
#pragma once

#include <initializer_list>
#include <memory>

#include "qkv/nn/attention_spec.h"
#include "qkv/ops/gather_columns.h"

namespace qkv {

// The parts of a head.
enum class HeadPart : uint8_t { query, key, value };

// Maps the columns of parts, one after another and each of all heads, to heads of one size; null if heads
// are alike. Queries are multiplied by a factor, so that scores are in effect divided by the root of their
// own head's size, not the widest's.
std::shared_ptr<const ColumnMap> spread_heads(const AttentionSpec& spec,
                                              std::initializer_list<HeadPart> parts);

// Maps the output of heads of one size to each head's own columns; null if heads are alike.
std::shared_ptr<const ColumnMap> narrow_heads(const AttentionSpec& spec);

}  // namespace qkv
