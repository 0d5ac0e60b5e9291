#include "qkv/ops/thread_product.h"

#include "qkv/kernels/kernels.h"
#include "qkv/kernels/scratch.h"

namespace qkv {

void multiply(const ThreadProduct& t) {
  if (t.m == 0 || t.n == 0) return;
  const Product p{.m = t.m,
                  .n = t.n,
                  .k = t.k,
                  .a = dense(t.a, DType::f32, t.a_transposed ? t.m : t.k, t.a_transposed),
                  .b = dense(t.b, DType::f32, t.b_transposed ? t.k : t.n, t.b_transposed),
                  .c = t.c,
                  .c_stride = t.n,
                  .accumulate = t.accumulate};
  if (kernels().product == nullptr) return generic_matrix_product(p);
  const Scratch scratch(kernels().product_scratch(p));
  kernels().product(p, scratch.data());
}

}  // namespace qkv
