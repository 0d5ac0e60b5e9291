#include "qkv/ops/embedding.h"

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"

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

}  // namespace

Tensor embedding(const Indices& ids, const Tensor& table, const char* what) {
  check(ids.defined() && ids.rank() == 1 && table.shape().rank() == 2,
        "embedding: expected {}s [N] and a table [V, D], got {} and {}", what, ids, table);
  const int64_t n = ids.count(), width = table.dim(1);
  const auto id = ids.values();
  for (int64_t i = 0; i < n; ++i)
    check(id[i] >= 0 && id[i] < table.dim(0), "{} {} at row {} is out of range: the table has {} rows", what,
          id[i], i, table.dim(0));
  Tensor out = Tensor::empty({n, width}, table.dtype());
  const int64_t bytes = width * size_of(table.dtype());
  const auto* from = static_cast<const std::byte*>(table.raw());
  auto* to = static_cast<std::byte*>(out.raw());
  parallel_for(n, row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) std::memcpy(to + r * bytes, from + id[r] * bytes, bytes);
  });
  if (wants_grad({&table})) connect(out, std::make_shared<EmbeddingNode>(ids, table));
  return out;
}

}  // namespace qkv
