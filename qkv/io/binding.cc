#include "qkv/io/binding.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "qkv/base/error.h"
#include "qkv/ops/dequantize.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

template <typename T>
Tensor transposed_as(const Tensor& x, int64_t matrices) {
  const int64_t rows = x.dim(0) / matrices;
  Tensor out = Tensor::empty({matrices * x.dim(1), rows}, x.dtype());
  const auto to = out.mutable_values<T>();
  for (int64_t r = 0; r < x.dim(0); ++r) {
    int64_t place = r / rows * rows * x.dim(1) + r % rows;
    for (const T v : x.row<T>(r)) {
      to[place] = v;
      place += rows;
    }
  }
  return out;
}

// x [matrices in, out] -> [matrices out, in]: each matrix is transposed.
Tensor transposed(const Tensor& x, int64_t matrices) {
  return x.dtype() == DType::bf16 ? transposed_as<BFloat16>(x, matrices) : transposed_as<float>(x, matrices);
}

// x as rows, one for each index of its first axis.
Tensor rows_of(const Tensor& x) {
  const int64_t rows = x.dim(0);
  return x.reshape({rows, x.count() / std::max<int64_t>(1, rows)});
}

// Row i of the result is row order[i] of x; `back` inverts the order.
Tensor reordered(const Tensor& x, const std::vector<int64_t>& order, bool back) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  Tensor to = rows_of(out);
  const Tensor from = rows_of(x);
  check(std::ssize(order) == x.dim(0), "weights: an order of {} rows for {}", order.size(), x.dim(0));
  for (int64_t i = 0; i < std::ssize(order); ++i)
    copy_rows(from, back ? i : order[i], 0, 1, to, back ? order[i] : i);
  return out;
}

}  // namespace

Tensor floating(const Tensor& x, DType wanted, const std::string& at) {
  Tensor f = x;
  if (x.dtype() == DType::f16 || x.dtype() == DType::f64) {
    f = Tensor::empty(x.shape(), DType::f32);
    const auto to = f.mutable_values<float>().begin();
    if (x.dtype() == DType::f64)
      std::ranges::transform(x.values<double>(), to, [](double v) { return static_cast<float>(v); });
    else
      std::ranges::transform(x.values<Float16>(), to, [](Float16 h) { return float_from_f16(h.bits); });
  }
  check(f.dtype() == DType::f32 || f.dtype() == DType::bf16, "{}: expected floating-point weights, got {}",
        at, name_of(x.dtype()));
  return convert(f, wanted);
}

namespace {

struct Stored {
  std::string name;
  Weight weight;  // undefined: the file has no such tensor
};

Stored find_tensor(const TensorFile& file, const WeightName& w, const std::string& prefix) {
  std::vector<std::string> names;
  for (const std::string& name : {w.file, w.also}) {
    if (name.empty()) continue;
    names.push_back(name);
    if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
  }
  for (const std::string& name : names) {
    if (const auto it = file.tensors.find(name); it != file.tensors.end()) return {name, it->second};
    if (const auto it = file.packed.find(name); it != file.packed.end()) return {name, it->second};
  }
  return {};
}

// Shape of the file's elements as rows of the parameter, or as columns if they are transposed.
Shape plain_shape(const WeightName& w, const Parameter& p) {
  const int64_t rows = (w.rows > 0 ? w.rows : p.shape[0]) + w.unused;
  if (p.shape.rank() > 2) return p.shape;
  if (w.transposed) return {w.matrices * p.shape[1], rows / w.matrices};
  return p.shape.rank() == 1 ? Shape{rows} : Shape{rows, p.shape[1]};
}
Shape file_shape(const WeightName& w, const Parameter& p) {
  return w.shape.empty() ? plain_shape(w, p) : Shape(std::span(w.shape));
}

// Blocks with row order[i] as row i.
QuantizedTensor reordered(const QuantizedTensor& x, const std::vector<int64_t>& order) {
  check(std::ssize(order) == x.dim(0), "weights: an order of {} rows for {}", order.size(), x.dim(0));
  QuantizedTensor out = QuantizedTensor::empty(x.shape(), x.type());
  const auto from = x.blocks();
  const auto to = out.mutable_blocks();
  const int64_t bytes = static_cast<int64_t>(x.bytes()) / std::max<int64_t>(1, x.dim(0));
  for (int64_t i = 0; i < std::ssize(order); ++i)
    to.subspan(i * bytes, bytes).copy(from.subspan(order[i] * bytes, bytes));
  return out;
}

// Rows of parameters that stay as the file has them, by their first rows.
using PackedRows = std::map<Parameter*, std::map<int64_t, Weight>>;

// True if a weight stays in 16 bits although activations are f32: products widen it.
bool stays_narrow(const Tensor& stored, DType compute) {
  return compute == DType::f32 && (stored.dtype() == DType::bf16 || stored.dtype() == DType::f16);
}

// The rows of a name in the order of the parameter: blocks and narrow numbers as they are, others in the
// compute type.
Weight rows_to_pack(const WeightName& w, const Parameter& p, const Weight& stored, DType compute,
                    const std::string& at) {
  if (!stored.is_packed()) {
    const Tensor value =
        (stays_narrow(stored.dense(), compute) ? stored.dense() : floating(stored.dense(), compute, at))
            .view(0, plain_shape(w, p));
    return w.row_order.empty() ? value : reordered(value, w.row_order, false);
  }
  if (!stored.is_quantized()) {  // a stack
    check(w.row_order.empty(), "{}: its rows cannot change their order", at);
    return stored;
  }
  const QuantizedTensor blocks = stored.quantized().reshape(plain_shape(w, p));
  return w.row_order.empty() ? blocks : reordered(blocks, w.row_order);
}

// The parameters that are read through weight() and have rows in the file that stay as they are.
PackedRows packed_parameters(Transformer& model, const std::vector<WeightName>& names,
                             const TensorSource& from, DType compute) {
  PackedRows packed;
  for (const WeightName& w : names) {
    Parameter* p = model.parameters().find(w.engine);
    if (p == nullptr || !p->any_type || w.unused > 0) continue;
    const auto [name, stored] = find_tensor(from.file, w, from.prefix);
    const bool stays = stored.is_packed() || (stored.defined() && stays_narrow(stored.dense(), compute));
    if (stays && (!w.transposed || from.file.in_engine_order.contains(name))) packed[p];
  }
  return packed;
}

// The name without what the file has done already.
WeightName as_in_engine(WeightName w, const Parameter& p) {
  w.transposed = false;
  w.row_order.clear();
  w.shape.clear();
  w.matrices = 1;
  if (w.rows == 0) w.rows = p.shape[0];
  return w;
}

}  // namespace

std::set<std::string> bind_weights(Transformer& model, const std::vector<WeightName>& names,
                                   const TensorSource& from, DType compute) {
  std::set<std::string> used;
  model.parameters().compute = compute;
  PackedRows packed = packed_parameters(model, names, from, compute);
  std::map<const Parameter*, int64_t> filled;  // filled rows of parameters stored in parts
  for (const WeightName& given : names) {
    Parameter* p = model.parameters().find(given.engine);
    check(p != nullptr, "{}: '{}' has no parameter '{}'", from.path, given.file, given.engine);
    const auto [name, stored] = find_tensor(from.file, given, from.prefix);
    const WeightName w = from.file.in_engine_order.contains(name) ? as_in_engine(given, *p) : given;
    const auto rows_as_they_are = packed.find(p);
    if (w.file.empty() || (w.optional && !stored.defined())) {
      const int64_t rows = w.rows > 0 ? w.rows : p->shape[0];
      if (rows_as_they_are != packed.end()) {
        rows_as_they_are->second.emplace(w.first_row, Tensor::zeros({rows, p->shape[1]}, compute));
        continue;
      }
      if (!p->value.defined()) p->value = Tensor::zeros(p->shape, DType::f32);
      p->value.slice_rows(w.first_row, w.first_row + rows).set_zero();
      filled[p] += rows;
      continue;
    }
    if (w.drawn && !stored.defined()) {
      p->value = drawn_numbers(*p, 0);
      continue;
    }
    check(stored.defined(), "{}: tensor '{}' is missing", from.path, w.file);
    const std::string at = from.path + ": tensor '" + name + "'";
    const Shape shape = file_shape(w, *p);
    check(stored.shape() == shape, "{}: expected {} by {}, got {}", at, shape, from.config, stored.shape());
    used.insert(name);
    if (!stored.is_packed() && stored.dense().dtype() != DType::f32)
      model.parameters().stored[w.file] = stored.dense().dtype();
    if (rows_as_they_are != packed.end()) {
      const Weight rows = rows_to_pack(w, *p, stored, compute, at);
      if (from.file.mapped) release_copied(stored, rows);
      rows_as_they_are->second.emplace(w.first_row, rows);
      continue;
    }
    const DType wanted = p->kind == ParameterKind::matrix ? compute : DType::f32;
    Tensor value = stored.is_packed() ? dequantized(stored, wanted) : floating(stored.dense(), wanted, at);
    if (!w.shape.empty()) value = value.view(0, plain_shape(w, *p));
    if (w.transposed) value = transposed(value, w.matrices);
    if (w.unused > 0)
      model.parameters().kept_rows[w.file] =
          stored.is_packed() ? dequantized(stored.slice_rows(0, w.unused), DType::f32)
                             : floating(stored.dense().slice_rows(0, w.unused), DType::f32, at);
    if (w.rows == 0) {
      p->value = w.unused > 0           ? value.slice_rows(w.unused, shape[0])
                 : !w.row_order.empty() ? reordered(value, w.row_order, false)
                                        : value;
      if (from.file.mapped) release_copied(stored, p->value);
      continue;
    }
    if (!w.row_order.empty()) value = reordered(value, w.row_order, false);
    if (!p->value.defined()) p->value = Tensor::empty(p->shape, value.dtype());
    p->value.slice_rows(w.first_row, w.first_row + w.rows).copy(value);
    if (from.file.mapped) release_copied(stored, p->value);
    filled[p] += w.rows;
  }
  for (const auto& [p, rows] : filled)
    check(rows == p->shape[0], "{}: parts of '{}' are missing", from.path, p->name);
  for (auto& [p, parts] : packed) {
    std::vector<Weight> in_turn;
    int64_t rows = 0;
    for (const auto& [first, part] : parts) {
      check(first == rows, "{}: parts of '{}' are missing", from.path, p->name);
      rows += part.dim(0);
      in_turn.push_back(part);
    }
    check(rows == p->shape[0], "{}: parts of '{}' are missing", from.path, p->name);
    p->packed = in_turn.size() == 1 ? in_turn.front() : Weight::stack(std::move(in_turn));
  }
  return used;
}

std::map<std::string, int64_t> bytes_left_packed(Transformer& model, const std::vector<WeightName>& names,
                                                 const TensorSource& from, DType compute) {
  std::map<std::string, int64_t> bytes;
  for (const auto& [p, rows] : packed_parameters(model, names, from, compute)) bytes[p->name] = 0;
  for (const WeightName& w : names)
    if (const auto of = bytes.find(w.engine); of != bytes.end())
      if (const Weight stored = find_tensor(from.file, w, from.prefix).weight; stored.defined())
        of->second += static_cast<int64_t>(stored.bytes());
  return bytes;
}

Tensor as_stored(const Tensor& x, DType type) {
  const auto values = x.values<float>();
  if (type == DType::bf16) {
    const auto fits = [](float v) { return (std::bit_cast<uint32_t>(v) & 0xFFFFu) == 0; };
    return std::all_of(values.begin(), values.end(), fits) ? convert(x, DType::bf16) : x;
  }
  if (type != DType::f16) return x;
  Tensor out = Tensor::empty(x.shape(), DType::f16);
  const auto to = out.mutable_values<Float16>();
  int64_t i = 0;
  for (const float v : values) {
    const auto bits = f16_from_float(v);
    if (!bits) return x;
    to[i++].bits = *bits;
  }
  return out;
}

Tensor as_in_file(const WeightName& w, const Parameter& p, Tensor x) {
  if (w.rows > 0) x = x.slice_rows(w.first_row, w.first_row + w.rows);
  if (!w.row_order.empty()) x = reordered(x, w.row_order, true);
  if (w.unused > 0) {
    Tensor whole = Tensor::zeros(plain_shape(w, p), DType::f32);
    whole.slice_rows(w.unused, whole.dim(0)).copy(x);
    x = whole;
  }
  if (w.transposed) x = transposed(x, w.matrices);
  return w.shape.empty() ? x : x.view(0, file_shape(w, p));
}

std::vector<std::pair<std::string, Tensor>> tensors_in_file(const Transformer& model,
                                                            const std::vector<WeightName>& names,
                                                            Tensor (*pick)(const Parameter&)) {
  std::map<std::string, const Parameter*> parameters;
  for (const Parameter& p : model.parameters().all()) parameters[p.name] = &p;
  std::vector<std::pair<std::string, Tensor>> out;
  for (const WeightName& w : names) {
    if (w.file.empty()) continue;
    const Parameter& p = *parameters.at(w.engine);
    out.emplace_back(w.file, as_in_file(w, p, convert(pick(p).detach(), DType::f32)));
  }
  return out;
}

Tensor trained_value(const Parameter& p) {
  return p.master.defined() ? p.master : dequantized(p.weight(), DType::f32);
}

std::vector<std::pair<std::string, Tensor>> weights_to_write(const Transformer& model,
                                                             const std::vector<WeightName>& names) {
  auto tensors = tensors_in_file(model, names, trained_value);
  const auto& stored = model.parameters().stored;
  const auto &kept = model.parameters().kept, &kept_rows = model.parameters().kept_rows;
  for (auto& [name, tensor] : tensors) {
    if (const auto it = kept_rows.find(name); it != kept_rows.end())
      tensor.slice_rows(0, it->second.dim(0)).copy(it->second);
    if (const auto it = stored.find(name); it != stored.end()) tensor = as_stored(tensor, it->second);
  }
  for (const auto& [name, tensor] : kept)
    if (std::ranges::find(tensors, name, [](const auto& t) { return t.first; }) == tensors.end())
      tensors.emplace_back(name, tensor);
  return tensors;
}

}  // namespace qkv
