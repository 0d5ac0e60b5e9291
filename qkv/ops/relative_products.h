// Products of every head with a vector for each distance, from which relative encodings of scores are
// computed.
#pragma once

#include "qkv/ops/attention.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// x [N, some heads, d], table [R, some heads, d] -> f32 [N, heads R], a table of PairTables: scale times
// the inner products of each row's head with the table's rows. If one has fewer heads, each serves several.
Tensor relative_products(const Heads& x, const Heads& table, int64_t heads, float scale);

// Adds by, f32 [D], to each row of x [N, D]: the query's biases of Dai et al. 2019.
Tensor shifted(const Tensor& x, const Tensor& by);

// Maps distances to rows of a table of vectors.
struct DistanceRows {
  enum class Kind : uint8_t {
    clipped,      // -k to k, one row each; distances beyond k count as k (Shaw et al. 2018)
    behind,       // 0 to k, for keys up to the query
    log_buckets,  // small distances one row each, larger ones by their logarithm (He et al. 2021, DeBERTa)
  };
  Kind kind = Kind::clipped;
  int64_t longest = 0;  // k
  int64_t buckets = 0;  // log_buckets: buckets per side; 0: one for each distance up to k

  // Number of rows of the table.
  int64_t rows() const;
  // The row of a key `distance` places before the query (negative: after it).
  int64_t of(int64_t distance) const;
  // [2 reach + 1]: rows of distances -reach to reach.
  Indices columns(int64_t reach) const;
};

// f32 [rows, width]: for each distance from `first` on, the sines and then the cosines of the distance
// times 10000^(-2 i / width) (Dai et al. 2019).
Tensor distance_sinusoids(int64_t first, int64_t rows, int64_t width);

}  // namespace qkv
