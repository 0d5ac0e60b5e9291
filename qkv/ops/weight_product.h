// Products by a weight, whatever its type: what linear layers, experts and the unembedding share.
#pragma once

#include <functional>

#include "qkv/kernels/gemm.h"
#include "qkv/tensor/weight.h"

namespace qkv {

// Throws Error naming the op unless activations of type `t` can be multiplied by the weight: one of the same
// type, or quantised blocks, or for f32 also f16 or bf16.
void expect_weight(std::string_view op, const Weight& weight, DType t);

// True where a row of a result must not depend on the other rows: in inference, where a prompt may come at
// once, in parts or beside others. Training takes faster ways, as does who sets QKV_FAST_PRODUCTS.
bool rows_stand_alone();

// A product of rows of activations, as part of a forward pass: in inference each row of the result has bits
// of its own, where row_product() takes it.
void multiply_rows(const Product& p);

// C = A W^T + bias for a weight [n, k]; `p` has all but B.
void multiply_by_weight(Product p, const Weight& weight);

// While it exists, sees the activations of every product above: `weight` and A [m, k]. One at a time;
// products are started from one thread.
class ActivationWatch {
 public:
  using See = std::function<void(const Weight& weight, const MatrixView& a, int64_t m, int64_t k)>;
  explicit ActivationWatch(See see);
  ~ActivationWatch();
  ActivationWatch(const ActivationWatch&) = delete;
  ActivationWatch& operator=(const ActivationWatch&) = delete;

 private:
  See see_;
};

// C = A W for a weight [k, n], the gradient of the above by its input; `p` has all but B.
void multiply_by_weight_transposed(Product p, const Weight& weight);

}  // namespace qkv
