// Heads of different sizes in one layer. The kernels take heads of one size: the columns of each are spread
// to as many as the widest has, with zeros, which add nothing to a score and are left out of the output.
#pragma once

#include <initializer_list>
#include <memory>

#include "qkv/nn/attention_spec.h"
#include "qkv/ops/gather_columns.h"

namespace qkv {

// What a head has columns of.
enum class HeadPart : uint8_t { query, key, value };

// From the columns of parts one after the other, each of all heads, to heads of one size; null where they
// have one already. Queries come multiplied so that their scores, divided by the root of the widest head,
// are divided by that of their own.
std::shared_ptr<const ColumnMap> spread_heads(const AttentionSpec& spec,
                                              std::initializer_list<HeadPart> parts);

// From the output of heads of one size to the columns that are theirs; null where all are.
std::shared_ptr<const ColumnMap> narrow_heads(const AttentionSpec& spec);

}  // namespace qkv
