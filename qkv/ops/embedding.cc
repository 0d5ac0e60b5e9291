#include "qkv/ops/embedding.h"

#include <cstring>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"
#include "qkv/quant/quantize.h"

namespace qkv {
namespace {

// dTable[v] = sum of the gradients of the rows with id v. Columns are divided among threads: each adds its
// rows in order, so the sum does not depend on timing.
class EmbeddingNode : public Node {
 public:
  EmbeddingNode(const Indices& ids, const Tensor& table) : ids_(ids), shape_(table.shape()) {
    add_input(table);
  }
  std::string_view name() const override { return "embedding"; }
  void backward(std::span<Tensor> grads) override {
    const Tensor& dy = grads[0];
    weight_grad(0, shape_, [&](Tensor& target, bool accumulate) {
      if (!accumulate) std::memset(target.raw(), 0, target.bytes());
      with_float_type("embedding", dy.dtype(), [&]<typename T>(T) {
        const T* from = dy.data<T>();
        float* to = target.mutable_data<float>();
        parallel_for(shape_[1], 16, [&](int64_t begin, int64_t end) {
          kernels().typed<T>().scatter_add(dy.rows(), shape_[1], from, ids_.values().data(), begin, end, to);
        });
      });
    });
  }

 private:
  Indices ids_;
  Shape shape_;
};

// Row r of `out` becomes the row at `from`.
void copy_row(const MatrixView& from, Tensor& out, int64_t r) {
  const int64_t width = out.width();
  auto* to = static_cast<std::byte*>(out.raw()) + r * width * size_of(out.dtype());
  if (from.type == weight_type(out.dtype())) {
    std::memcpy(to, from.data, width * size_of(out.dtype()));
    return;
  }
  if (out.dtype() == DType::f32)
    return dequantize_row(from.type, static_cast<const std::byte*>(from.data), width,
                          reinterpret_cast<float*>(to));
  std::vector<float> row(width);
  dequantize_row(from.type, static_cast<const std::byte*>(from.data), width, row.data());
  kernels().bf16.from_f32(width, row.data(), reinterpret_cast<BFloat16*>(to));
}

}  // namespace

Tensor embedding(const Indices& ids, const Weight& table, const char* what, DType type) {
  check(ids.defined() && ids.rank() == 1 && table.defined() && table.shape().rank() == 2,
        "embedding: expected {}s [N] and a table [V, D], got {} and {}", what, ids, table);
  const int64_t n = ids.count(), width = table.dim(1);
  const auto id = ids.values();
  for (int64_t i = 0; i < n; ++i)
    check(id[i] >= 0 && id[i] < table.dim(0), "{} {} at row {} is out of range: the table has {} rows", what,
          id[i], i, table.dim(0));
  const bool learns = wants_grad({&table.dense()});
  check(!learns || table.dense().dtype() == type, "embedding: a table that learns must be {}, got {}",
        name_of(type), name_of(table.type()));
  Tensor out = Tensor::empty({n, width}, type);
  const std::vector<Weight::Rows> runs = table.runs();
  parallel_for(n, row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      auto run = runs.begin();
      while (id[r] >= run->first + run->count) ++run;
      copy_row(run->view.from(id[r] - run->first, 0), out, r);
    }
  });
  if (learns) connect(out, std::make_shared<EmbeddingNode>(ids, table.dense()));
  return out;
}

}  // namespace qkv
