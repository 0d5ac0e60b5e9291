// Common to the fused attention and the one by definition: checks, and the arguments of kernels.
#pragma once

#include <span>

#include "qkv/ops/attention.h"

namespace qkv {

// Throws Error if the arguments of attention() do not fit each other.
void check_attention(const Heads& q, const Heads& k, const Heads& v, std::span<const int32_t> offsets,
                     const KeyLayout& keys, const AttentionOptions& options);

// Arguments of the kernels, pointing into tensors that the caller keeps alive.
template <typename T>
Attention<T> kernel_arguments(const Heads& q, const Heads& k, const Heads& v,
                              std::span<const int32_t> offsets, const KeyLayout& keys,
                              const AttentionOptions& o, T* out, float* lse) {
  Attention<T> a{};
  a.sequences = static_cast<int64_t>(keys.lengths.size());
  a.heads = q.heads;
  a.kv_heads = k.heads;
  a.d_qk = q.width;
  a.d_vo = v.width;
  a.q_offsets = offsets.data();
  a.key_lengths = keys.lengths.data();
  a.block_offsets = keys.block_offsets.data();
  a.blocks = keys.blocks.data();
  a.block_rows = keys.block_rows;
  a.mask = o.mask;
  if (o.visibility.table.defined()) {
    a.mask = {.kind = Mask::Kind::table, .table = o.visibility.table.values().data()};
  } else if (o.visibility.defined()) {
    a.mask = {Mask::Kind::ranked, o.visibility.query.values().data(), o.visibility.key.values().data()};
    a.mask.own_last = o.mask.own_last;
    a.mask.pattern = o.mask.pattern;
  }
  if (o.globals.defined()) {
    a.mask.globals = o.globals.values().data();
    a.mask.pattern.global = 0;
  }
  if (o.term.defined()) a.term = {o.term.data<float>(), o.term.dim(1) / 2};
  if (o.pair.defined()) {
    const auto table = [](const Tensor& x) { return x.defined() ? x.data<float>() : nullptr; };
    const PairTables& p = o.pair;
    a.pair.by_query = table(p.by_query);
    a.pair.by_key = table(p.by_key);
    a.pair.by_segment = table(p.by_segment);
    if (p.columns.defined()) {
      a.pair.columns = p.columns.values().data();
      a.pair.reach = p.columns.count() / 2;
      a.pair.width = (p.by_query.defined() ? p.by_query : p.by_key).width() / q.heads;
    }
    if (p.segments.defined()) a.pair.segments = p.segments.values().data();
    if (p.positions.defined()) a.pair.positions = p.positions.values().data();
  }
  a.padded_length = o.padded_length;
  a.scale = o.scale;
  a.cap = o.cap;
  a.sinks = o.sinks.defined() ? o.sinks.data<float>() : nullptr;
  a.dropout = o.dropout;
  a.q = q.x.data<T>() + q.column;
  a.q_stride = q.x.width();
  a.k = k.x.data<T>() + k.column;
  a.k_stride = k.x.width();
  a.v = v.x.data<T>() + v.column;
  a.v_stride = v.x.width();
  a.out = out;
  a.out_stride = q.heads * v.width;
  a.lse = lse;
  return a;
}

}  // namespace qkv
