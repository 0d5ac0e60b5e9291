// The norm of columns over the rows of a batch.
#pragma once

#include "qkv/tensor/tensor.h"

namespace qkv {

// Mean and variance of each column, f32 [D].
struct ColumnStatistics {
  Tensor mean, variance;
};

// Statistics of x [N, D]; the variance divides by N. N > 0.
ColumnStatistics column_statistics(const Tensor& x);

// x [N, D]; gamma, beta f32 [D] -> (x - mean) / sqrt(variance + epsilon) gamma + beta, column by column
// (Ioffe & Szegedy 2015, Algorithm 1). `of_x`: the statistics are x's own, and its gradient goes through
// them.
Tensor batch_norm(const Tensor& x, const ColumnStatistics& statistics, bool of_x, const Tensor& gamma,
                  const Tensor& beta, float epsilon);

}  // namespace qkv
