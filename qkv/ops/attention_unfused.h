// Exact attention by definition, with the scores and probabilities of every head at hand: for probes and
// tests.
#pragma once

#include <functional>

#include "qkv/ops/attention.h"

namespace qkv {

// Sees one head's scores or probabilities in one sequence, f32 [queries, keys], and may assign others of this
// shape. Scores of keys that a query does not see are -infinity.
using HeadVisitor = std::function<void(int64_t sequence, int64_t head, Tensor& value)>;

struct AttentionVisitors {
  HeadVisitor scores = nullptr, probabilities = nullptr;  // null: nobody looks
};

// The same as attention(), head by head, in time and memory of queries times keys. Gradients pass through the
// visited values. REQUIRES: no dropout.
Tensor attention_unfused(const Heads& q, const Heads& k, const Heads& v, std::span<const int32_t> offsets,
                         const KeyLayout& keys, const AttentionOptions& options,
                         const AttentionVisitors& visitors = {});

}  // namespace qkv
