// What relative encodings of the scores are made of: products of every head with a vector for each distance.
#pragma once

#include "qkv/ops/attention.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// x [N, some heads, d], table [R, some heads, d] -> f32 [N, heads R], a table of PairTables: scale times the
// inner products of each row's head with the table's rows. Where one has fewer heads, each serves several.
Tensor relative_products(const Heads& x, const Heads& table, int64_t heads, float scale);

// x [N, D] + 1 by^T, by f32 [D]: the query's biases of Dai et al. 2019.
Tensor shifted(const Tensor& x, const Tensor& by);

// How distances find their row of a table of vectors.
struct DistanceRows {
  enum class Kind : uint8_t {
    clipped,      // -k to k one after the other, those beyond k as it (Shaw et al. 2018)
    behind,       // 0 to k: of keys up to the query
    log_buckets,  // small ones as they are, larger ones by their logarithm (He et al. 2021, DeBERTa)
  };
  Kind kind = Kind::clipped;
  int64_t longest = 0;  // k
  int64_t buckets = 0;  // of log_buckets, on each side; 0: every distance up to k has its own

  // Of the table.
  int64_t rows() const;
  // Of a key so many places before the query (after it: negative).
  int64_t of(int64_t distance) const;
  // [2 reach + 1]: of distances -reach to reach.
  Indices columns(int64_t reach) const;
};

// f32 [rows, width]: of each distance from `first` on the sines, then the cosines of it times 10000^(-2 i /
// width) (Dai et al. 2019).
Tensor distance_sinusoids(int64_t first, int64_t rows, int64_t width);

}  // namespace qkv
