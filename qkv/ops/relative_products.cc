#include "qkv/ops/relative_products.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/kernels/gemm.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

// A head of x and the head of the table that it meets.
struct HeadPair {
  int64_t x, table;
};
HeadPair heads_of(const Heads& x, const Heads& table, int64_t heads, int64_t h) {
  return {h / (heads / x.heads), h / (heads / table.heads)};
}

const std::byte* start_of(const Heads& x, int64_t head) {
  return static_cast<const std::byte*>(x.x.raw()) + (x.column + head * x.width) * size_of(x.x.dtype());
}

// dX_h = scale dY_h T_h;  dT_h = scale dY_h^T X_h.
class RelativeProductsNode : public Node {
 public:
  RelativeProductsNode(const Heads& x, const Heads& table, int64_t heads, float scale)
      : x_(x), table_(table), heads_(heads), scale_(scale) {
    add_input(x.x);
    add_input(table.x);
    x_.x = x.x.detach();
    table_.x = table.x.detach();
  }
  std::string_view name() const override { return "relative_products"; }

  void backward(std::span<Tensor> grads) override {
    const Tensor dy = convert(scale_ == 1 ? grads[0] : scaled(grads[0], scale_), x_.x.dtype());
    const int64_t distances = table_.x.rows();
    // Sums in f32, as several heads may add to one.
    Tensor dx = wants(0) ? Tensor::zeros(x_.x.shape(), DType::f32) : Tensor();
    const auto of_head = [&](int64_t h) {
      return static_cast<const std::byte*>(dy.raw()) + h * distances * size_of(dy.dtype());
    };
    for (int64_t h = 0; h < heads_ && wants(0); ++h) {
      const HeadPair pair = heads_of(x_, table_, heads_, h);
      matrix_product({.m = x_.x.rows(),
                      .n = x_.width,
                      .k = distances,
                      .a = dense(of_head(h), dy.dtype(), dy.width()),
                      .b = dense(start_of(table_, pair.table), dy.dtype(), table_.x.width()),
                      .c = dx.mutable_data<float>() + x_.column + pair.x * x_.width,
                      .c_stride = dx.width(),
                      .accumulate = true});
    }
    if (wants(0)) give(0, convert(dx, x_.x.dtype()));
    weight_grad(1, table_.x.shape(), [&](Tensor& dtable, bool accumulate) {
      if (!accumulate) std::memset(dtable.raw(), 0, dtable.bytes());
      for (int64_t h = 0; h < heads_; ++h) {
        const HeadPair pair = heads_of(x_, table_, heads_, h);
        matrix_product({.m = distances,
                        .n = x_.width,
                        .k = x_.x.rows(),
                        .a = dense(of_head(h), dy.dtype(), dy.width(), true),
                        .b = dense(start_of(x_, pair.x), dy.dtype(), x_.x.width()),
                        .c = dtable.mutable_data<float>() + table_.column + pair.table * x_.width,
                        .c_stride = dtable.width(),
                        .accumulate = true});
      }
    });
  }

 private:
  Heads x_, table_;
  int64_t heads_;
  float scale_;
};

class ShiftedNode : public Node {
 public:
  ShiftedNode(const Tensor& x, const Tensor& by) {
    add_input(x);
    add_input(by);
  }
  std::string_view name() const override { return "shifted"; }
  void backward(std::span<Tensor> grads) override {
    const Tensor& dy = grads[0];
    weight_grad(1, {dy.width()}, [&](Tensor& target, bool accumulate) {
      if (!accumulate) std::memset(target.raw(), 0, target.bytes());
      with_float_type("shifted", dy.dtype(), [&]<typename T>(T) {
        parallel_for(dy.width(), std::max<int64_t>(16, row_grain(dy.rows())),
                     [&](int64_t begin, int64_t end) {
                       kernels().typed<T>().column_sums(dy.rows(), dy.width(), dy.data<T>(), begin, end,
                                                        target.mutable_data<float>());
                     });
      });
    });
    give(0, std::move(grads[0]));
  }
};

}  // namespace

Tensor relative_products(const Heads& x, const Heads& table, int64_t heads, float scale) {
  for (const Heads* h : {&x, &table})
    check(h->x.defined() && h->x.shape().rank() == 2 && h->heads > 0 && h->width > 0 && h->column >= 0 &&
              h->column + h->heads * h->width <= h->x.width(),
          "relative_products: {} heads of {} columns from column {}, got {}", h->heads, h->width, h->column,
          h->x);
  const int64_t distances = table.x.rows();
  check(x.width == table.width && heads > 0 && heads % x.heads == 0 && heads % table.heads == 0,
        "relative_products: {} heads of {} and {} of {} do not make {} heads", x.heads, x.width, table.heads,
        table.width, heads);
  expect_dtype("relative_products", "table", table.x, x.x.dtype());
  Tensor out = Tensor::empty({x.x.rows(), heads * distances}, DType::f32);
  for (int64_t h = 0; h < heads; ++h) {
    const HeadPair pair = heads_of(x, table, heads, h);
    matrix_product({.m = x.x.rows(),
                    .n = distances,
                    .k = x.width,
                    .a = dense(start_of(x, pair.x), x.x.dtype(), x.x.width()),
                    .b = dense(start_of(table, pair.table), x.x.dtype(), table.x.width(), true),
                    .c = out.mutable_data<float>() + h * distances,
                    .c_stride = out.width()});
  }
  if (scale != 1) kernels().scale(out.count(), scale, out.mutable_data<float>());
  if (wants_grad({&x.x, &table.x}))
    connect(out, std::make_shared<RelativeProductsNode>(x, table, heads, scale));
  return out;
}

Tensor shifted(const Tensor& x, const Tensor& by) {
  check(x.defined() && x.shape().rank() == 2, "shifted: expected x [N, D]");
  expect_shape("shifted", "by", by, {x.width()});
  expect_dtype("shifted", "by", by, DType::f32);
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  with_float_type("shifted", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    const float* add = by.data<float>();
    T* to = out.mutable_data<T>();
    parallel_for(x.rows(), row_grain(x.width()), [&](int64_t r, int64_t end) {
      for (; r < end; ++r)
        for (int64_t c = 0; c < x.width(); ++c)
          to[r * x.width() + c] = T(static_cast<float>(from[r * x.width() + c]) + add[c]);
    });
  });
  if (wants_grad({&x, &by})) connect(out, std::make_shared<ShiftedNode>(x, by));
  return out;
}

int64_t DistanceRows::rows() const {
  switch (kind) {
    case Kind::clipped:
      return 2 * longest + 1;
    case Kind::behind:
      return longest + 1;
    case Kind::log_buckets:
      break;
  }
  return 2 * (buckets > 0 ? buckets : longest);
}

int64_t DistanceRows::of(int64_t distance) const {
  if (kind == Kind::behind) return std::clamp<int64_t>(distance, 0, longest);
  if (kind == Kind::clipped) return longest + std::clamp(distance, -longest, longest);
  const int64_t span = rows() / 2, middle = buckets / 2, far = std::abs(distance);
  int64_t bucket = distance;
  if (buckets > 0 && far > middle) {
    // In f32, as the published models were trained: the border of a bucket is a rounding away.
    const float growth =
        std::log(static_cast<float>(far) / static_cast<float>(middle)) /
        std::log(static_cast<float>(static_cast<double>(longest - 1) / static_cast<double>(middle)));
    bucket = static_cast<int64_t>(std::ceil(growth * static_cast<float>(middle - 1))) + middle;
    if (distance < 0) bucket = -bucket;
  }
  return std::clamp<int64_t>(bucket + span, 0, 2 * span - 1);
}

Indices DistanceRows::columns(int64_t reach) const {
  std::vector<int32_t> out;
  for (int64_t d = -reach; d <= reach; ++d) out.push_back(static_cast<int32_t>(of(d)));
  return out;
}

Tensor distance_sinusoids(int64_t first, int64_t rows, int64_t width) {
  check(width > 0 && width % 2 == 0, "distance_sinusoids: width must be even, got {}", width);
  Tensor out = Tensor::empty({rows, width}, DType::f32);
  float* to = out.mutable_data<float>();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < width / 2; ++i) {
      const double angle = static_cast<double>(first + r) *
                           std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(width));
      to[r * width + i] = static_cast<float>(std::sin(angle));
      to[r * width + width / 2 + i] = static_cast<float>(std::cos(angle));
    }
  return out;
}

}  // namespace qkv
