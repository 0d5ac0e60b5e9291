#include "qkv/ops/weight_product.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "qkv/autograd/graph.h"
#include "qkv/base/error.h"
#include "qkv/kernels/row_product.h"

namespace qkv {

void expect_weight(std::string_view op, const Weight& weight, DType t) {
  for (const Weight::Rows& run : weight.runs()) {
    const WeightType type = run.view.type;
    const bool widened = t == DType::f32 && (type == WeightType::f16 || type == WeightType::bf16);
    check(is_quantized(type) || widened || type == weight_type(t), "{}: weight must be {}, got {}", op,
          name_of(t), name_of(type));
  }
}

namespace {

const ActivationWatch::See* watching = nullptr;

}  // namespace

bool rows_stand_alone() {
  static const bool fast = [] {
    const char* set = std::getenv("QKV_FAST_PRODUCTS");
    return set != nullptr && std::string_view(set) != "0";
  }();
  return !fast && inferring();
}

ActivationWatch::ActivationWatch(See see) : see_(std::move(see)) {
  check(watching == nullptr, "activations: they are being watched already");
  watching = &see_;
}
ActivationWatch::~ActivationWatch() {
  watching = nullptr;
}

void multiply_rows(const Product& p) {
  rows_stand_alone() && row_product_takes(p) ? row_product(p) : matrix_product(p);
}

void multiply_by_weight(Product p, const Weight& weight) {
  if (watching != nullptr) (*watching)(weight, p.a, p.m, p.k);
  const Product whole = p;
  for (const Weight::Rows& run : weight.runs()) {
    p.n = run.count;
    p.b = run.view;
    p.b.transposed = true;
    p.bias = whole.bias != nullptr ? whole.bias + run.first : nullptr;
    p.c = static_cast<std::byte*>(whole.c) + run.first * size_of(p.out);
    multiply_rows(p);
  }
}

void multiply_by_weight_transposed(Product p, const Weight& weight) {
  const MatrixView a = p.a;
  for (const Weight::Rows& run : weight.runs()) {
    p.k = run.count;
    p.a = a.transposed ? a.from(run.first, 0) : a.from(0, run.first);
    p.b = run.view;
    matrix_product(p);
    p.accumulate = true;
  }
}

}  // namespace qkv
