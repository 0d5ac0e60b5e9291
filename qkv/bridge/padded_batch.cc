#include "qkv/bridge/padded_batch.h"

#include "qkv/base/error.h"

namespace qkv {

std::vector<std::vector<int32_t>> PaddedBatch::sequences() const {
  std::vector<std::vector<int32_t>> out;
  auto at = ids.begin();
  for (const int32_t n : lengths) {
    out.emplace_back(at, at + n);
    at += n;
  }
  return out;
}

PaddedBatch PaddedBatch::whole(int64_t rows, int64_t columns) {
  PaddedBatch out;
  out.rows = rows;
  out.columns = columns;
  out.ids.assign(static_cast<size_t>(rows * columns), 0);
  for (int64_t i = 0; i < rows * columns; ++i) out.places.push_back(i);
  out.lengths.assign(static_cast<size_t>(rows), static_cast<int32_t>(columns));
  return out;
}

Tensor PaddedBatch::spread(const Tensor& x) const {
  Tensor out = Tensor::zeros({rows, columns, x.width()}, DType::f32);
  for (int64_t i = 0; i < std::ssize(places); ++i) out.mutable_row<float>(places[i]).copy(x.row<float>(i));
  return out;
}

std::vector<int64_t> PaddedBatch::gather(const std::vector<int64_t>& values) const {
  std::vector<int64_t> out;
  for (const int64_t place : places) out.push_back(values[place]);
  return out;
}

std::vector<int64_t> integers(const TensorFile& in, const std::string& name, const std::string& path) {
  const auto it = in.tensors.find(name);
  check(it != in.tensors.end(), "{}: {}: missing", path, name);
  const Tensor& x = it->second;
  check(x.dtype() == DType::i64 || x.dtype() == DType::i32, "{}: {}: expected I64 or I32, got {}", path, name,
        name_of(x.dtype()));
  const auto all = [](const auto& values) { return std::vector<int64_t>(values.begin(), values.end()); };
  return x.dtype() == DType::i64 ? all(x.values<int64_t>()) : all(x.values<int32_t>());
}

PaddedBatch read_padded(const TensorFile& in, const std::string& path, const std::string& name,
                        const std::string& mask_name, int64_t vocab, int64_t longest) {
  const std::vector<int64_t> values = integers(in, name, path);
  const Shape shape = in.tensors.at(name).shape();
  check(shape.rank() == 2, "{}: {}: expected [batch, length], got {}", path, name, shape);
  PaddedBatch b;
  b.rows = shape[0];
  b.columns = shape[1];
  std::vector<int64_t> mask(values.size(), 1);
  if (in.tensors.contains(mask_name)) {
    const Shape its = in.tensors.at(mask_name).shape();
    check(its == shape, "{}: {}: expected {}, got {}", path, mask_name, shape, its);
    mask = integers(in, mask_name, path);
  }
  for (int64_t r = 0; r < b.rows; ++r) {
    int32_t length = 0;
    for (int64_t c = 0; c < b.columns; ++c) {
      const int64_t at = r * b.columns + c;
      check(mask[at] == 0 || mask[at] == 1, "{}: {}: expected 0 or 1, got {}", path, mask_name, mask[at]);
      if (mask[at] == 0) continue;
      check(values[at] >= 0 && values[at] < vocab, "{}: {}: {} in row {} is not one of the model's {} tokens",
            path, name, values[at], r, vocab);
      b.ids.push_back(static_cast<int32_t>(values[at]));
      b.places.push_back(at);
      ++length;
    }
    check(longest == 0 || length <= longest, "{}: {}: row {} has {} tokens, the model's context is {}", path,
          name, r, length, longest);
    b.lengths.push_back(length);
  }
  return b;
}

PaddedBatch read_with_pairs(const TensorFile& in, const std::string& path, const std::string& name,
                            const std::string& mask, int64_t vocab, int64_t longest, Visibility& visibility) {
  const Shape shape = in.tensors.at(name).shape(), its = in.tensors.at(mask).shape();
  check(shape.rank() == 2 && its == Shape{shape[0], shape[1], shape[1]},
        "{}: {}: expected a mask of the tokens or of their pairs, [B, T] or [B, T, T], got {} with {} {}",
        path, mask, its, name, shape);
  const std::vector<int64_t> pairs = integers(in, mask, path);
  const int64_t n = shape[1];
  std::vector<int64_t> real(static_cast<size_t>(shape[0] * n), 0);
  for (int64_t i = 0; i < std::ssize(pairs); ++i) {
    check(pairs[i] == 0 || pairs[i] == 1, "{}: {}: expected 0 or 1, got {}", path, mask, pairs[i]);
    if (pairs[i] == 1) real[i / n] = real[i / (n * n) * n + i % n] = 1;
  }
  TensorFile made;
  made.tensors.emplace(name, in.tensors.at(name));
  made.tensors.emplace("real", Tensor::of(shape, real));
  PaddedBatch b = read_padded(made, path, name, "real", vocab, longest);
  std::vector<int32_t> table;
  for (int64_t r = 0, first = 0; r < b.rows; first += b.lengths[r++])
    for (int64_t q = first; q < first + b.lengths[r]; ++q)
      for (int64_t k = first; k < first + b.lengths[r]; ++k)
        table.push_back(static_cast<int32_t>(pairs[b.places[q] * n + b.places[k] % n]));
  visibility.table = std::move(table);
  return b;
}

}  // namespace qkv
