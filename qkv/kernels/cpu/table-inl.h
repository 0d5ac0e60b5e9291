// The table of all SIMD kernels for one instruction set.
#if defined(QKV_KERNELS_CPU_TABLE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_TABLE_INL_H
#undef QKV_KERNELS_CPU_TABLE_INL_H
#else
#define QKV_KERNELS_CPU_TABLE_INL_H
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "qkv/kernels/kernels.h"
#include "qkv/kernels/scratch.h"
#include "qkv/kernels/tile_product.h"
// Highway asks for this order.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "qkv/kernels/cpu/attention-inl.h"
#include "qkv/kernels/cpu/attention_tiles-inl.h"
#include "qkv/kernels/cpu/elementwise-inl.h"
#include "qkv/kernels/cpu/fast_weights-inl.h"
#include "qkv/kernels/cpu/product-inl.h"
#include "qkv/kernels/cpu/row_product-inl.h"
#include "qkv/kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

template <typename T>
TypedKernels<T> typed_kernels() {
  return {to_f32<T>,        from_f32<T>,        add<T>,           dropout<T>,
          activation<T>,    activation_grad<T>, residual_norm<T>, residual_norm_grad<T>,
          cross_entropy<T>, column_sums<T>,     scatter_add<T>,   row_product<T>,
          attention<T>,     attention<T>,       attention_grad<T>};
}

void fill_table(KernelTable* table) {
  table->f32 = typed_kernels<float>();
  table->bf16 = typed_kernels<BFloat16>();
  table->row_product_f16 = row_product<Float16>;
  table->sum_squares = sum_squares;
  table->log_sum_exp = log_sum_exp;
  table->exp = exponentials;
  table->scale = scale;
  table->axpy = axpy;
  table->update = update;
  table->fast_weights = fast_weights;
  table->fast_weights_grad = fast_weights_grad;
  table->product = product;
  table->product_scratch = product_scratch;
}
}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // the toggled include guard
