#include "qkv/ops/gather_columns.h"

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

template <typename T>
void gather(const T* x, const ColumnMap& map, int64_t rows, T* out) {
  const int64_t columns = map.size();
  parallel_for(rows, row_grain(columns), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t j = 0; j < columns; ++j) {
        const int32_t from = map.source[static_cast<size_t>(j)];
        out[r * columns + j] =
            from < 0 ? T(0.0F)
                     : T(map.factor[static_cast<size_t>(j)] * static_cast<float>(x[r * map.from + from]));
      }
  });
}

Tensor gathered(const Tensor& x, const ColumnMap& map) {
  Tensor out = Tensor::empty({x.dim(0), map.size()}, x.dtype());
  with_float_type("gather_columns", x.dtype(), [&](auto t) {
    using T = decltype(t);
    gather(x.data<T>(), map, x.dim(0), out.mutable_data<T>());
  });
  return out;
}

// The map of the gradient, from the result's columns back to those of x.
ColumnMap inverse(const ColumnMap& map) {
  ColumnMap back{map.size(), std::vector<int32_t>(static_cast<size_t>(map.from), -1),
                 std::vector<float>(static_cast<size_t>(map.from), 0.0F)};
  for (size_t j = 0; j < map.source.size(); ++j) {
    if (map.source[j] < 0) continue;
    const auto from = static_cast<size_t>(map.source[j]);
    back.source[from] = static_cast<int32_t>(j);
    back.factor[from] = map.factor[j];
  }
  return back;
}

class GatherColumnsNode : public Node {
 public:
  GatherColumnsNode(const Tensor& x, std::shared_ptr<const ColumnMap> map) : map_(std::move(map)) {
    add_input(x);
  }
  std::string_view name() const override { return "gather_columns"; }
  void backward(std::span<Tensor> grads) override { give(0, gathered(grads[0], inverse(*map_))); }

 private:
  std::shared_ptr<const ColumnMap> map_;
};

}  // namespace

Tensor gather_columns(const Tensor& x, const std::shared_ptr<const ColumnMap>& map) {
  check(x.defined() && x.shape().rank() == 2 && x.width() == map->from,
        "gather_columns: expected x [N, {}], got {}", map->from, x);
  check(map->factor.size() == map->source.size(), "gather_columns: {} factors of {} columns",
        map->factor.size(), map->source.size());
  for (const int32_t from : map->source)
    check(from >= -1 && from < map->from, "gather_columns: column {} of {}", from, map->from);
  Tensor out = gathered(x, *map);
  if (wants_grad({&x})) connect(out, std::make_shared<GatherColumnsNode>(x, map));
  return out;
}

}  // namespace qkv
