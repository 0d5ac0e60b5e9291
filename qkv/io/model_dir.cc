#include "qkv/io/model_dir.h"

#include <filesystem>
#include <limits>
#include <map>
#include <set>

#include "qkv/io/adapter_dir.h"
#include "qkv/io/safetensors.h"
#include "qkv/io/weights.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

template <typename T>
Tensor transposed_as(const Tensor& x) {
  Tensor out = Tensor::empty({x.dim(1), x.dim(0)}, x.dtype());
  const T* from = x.data<T>();
  T* to = out.mutable_data<T>();
  for (int64_t r = 0; r < x.dim(0); ++r)
    for (int64_t c = 0; c < x.dim(1); ++c) to[c * x.dim(0) + r] = from[r * x.dim(1) + c];
  return out;
}

Tensor transposed(const Tensor& x) {
  return x.dtype() == DType::bf16 ? transposed_as<BFloat16>(x) : transposed_as<float>(x);
}

// Row i of the result is row order[i] of x, or with `back` the other way round.
Tensor reordered(const Tensor& x, const std::vector<int64_t>& order, bool back) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  const int64_t row = x.bytes() / x.dim(0);
  for (int64_t i = 0; i < std::ssize(order); ++i)
    std::memcpy(static_cast<std::byte*>(out.raw()) + (back ? order[i] : i) * row,
                static_cast<const std::byte*>(x.raw()) + (back ? i : order[i]) * row, row);
  return out;
}

// A file's tensor as f32 or bf16.
Tensor floating(const Tensor& x, DType wanted, const std::string& at) {
  Tensor f = x;
  if (x.dtype() == DType::f16 || x.dtype() == DType::f64) {
    f = Tensor::empty(x.shape(), DType::f32);
    float* to = f.mutable_data<float>();
    for (int64_t i = 0; i < x.count(); ++i)
      to[i] = x.dtype() == DType::f64 ? static_cast<float>(x.data<double>()[i])
                                      : float_from_f16(static_cast<const uint16_t*>(x.raw())[i]);
  }
  check(f.dtype() == DType::f32 || f.dtype() == DType::bf16, "{}: expected floating-point weights, got {}",
        at, name_of(x.dtype()));
  return convert(f, wanted);
}

std::string config_path(const std::string& dir) {
  check(std::filesystem::is_directory(dir),
        "{}: no such directory (expected a model directory with config.json)", dir);
  const std::string path = dir + "/config.json";
  // An adapter that others wrote has its model's.
  if (!file_exists(path) && is_adapter_dir(dir)) return read_adapter_config(dir).base + "/config.json";
  check(file_exists(path), "{}: missing: {} is not a model directory", path, dir);
  return path;
}

struct ConfigFile {
  std::string path;
  Json json;
  const Family& family;
};

ConfigFile parse_config(std::string_view document, const std::string& where) {
  Json json = parse_json(document, where);
  const Family& family = family_of(JsonField(json, where));
  return {where, std::move(json), family};
}

ConfigFile read_config(const std::string& dir) {
  const std::string path = config_path(dir);
  return parse_config(read_file(path), path);
}

}  // namespace

std::string resolve_model_dir(const std::string& dir) {
  for (const std::string& candidate : {dir, dir + "/best", dir + "/last"})
    if (file_exists(candidate + "/config.json") || is_adapter_dir(candidate)) return candidate;
  check(std::filesystem::is_directory(dir), "{}: no such directory (expected a model directory or a run)",
        dir);
  fail("{}: holds no model: expected config.json here, in best/ or in last/", dir);
}

namespace {

ModelSpec spec_of(const ConfigFile& config) {
  try {
    ModelSpec spec = config.family.read_config(JsonField(config.json, config.path));
    if (&config.family != &native_family() && &family_for(spec) != &config.family)
      spec.family = config.family.model_type;
    check_spec(spec);
    return spec;
  } catch (const Error& e) {  // what the spec itself refuses does not know the file
    if (std::string_view(e.what()).starts_with(config.path)) throw;
    fail("{}: {}", config.path, e.what());
  }
}

}  // namespace

ModelSpec load_spec(const std::string& dir) {
  ModelSpec spec = spec_of(read_config(dir));
  if (!is_adapter_dir(dir)) return spec;
  spec.lora = read_adapter_config(dir);
  spec.lora.adapters = adapters_of(spec);
  return spec;
}

ModelSpec parse_spec(std::string_view document, const std::string& where) {
  return spec_of(parse_config(document, where));
}

namespace {

auto find_tensor(const Safetensors& file, const WeightName& w, const std::string& prefix) {
  for (const std::string& name : {w.file, w.also}) {
    if (name.empty()) continue;
    auto it = file.tensors.find(name);
    if (it == file.tensors.end() && name.starts_with(prefix))
      it = file.tensors.find(name.substr(prefix.size()));
    if (it != file.tensors.end()) return it;
  }
  return file.tensors.end();
}

// The file's elements as rows of the parameter, or as columns of them.
Shape plain_shape(const WeightName& w, const Parameter& p) {
  const int64_t rows = (w.rows > 0 ? w.rows : p.shape[0]) + w.unused;
  if (w.transposed) return {p.shape[1], rows};
  return p.shape.rank() == 1 ? Shape{rows} : Shape{rows, p.shape[1]};
}
Shape file_shape(const WeightName& w, const Parameter& p) {
  return w.shape.empty() ? plain_shape(w, p) : Shape(std::span(w.shape));
}

}  // namespace

std::unique_ptr<Transformer> load_model(const std::string& dir, DType compute) {
  const ModelSpec spec = load_spec(dir);
  if (spec.lora.any()) {
    check(!is_adapter_dir(spec.lora.base), "{}: its model {} is an adapter itself", dir, spec.lora.base);
    const std::unique_ptr<Transformer> base = load_model(spec.lora.base, compute);
    auto adapted = std::make_unique<Transformer>(spec);
    load_adapters(dir, *adapted, *base);
    return adapted;
  }
  const ConfigFile config = read_config(dir);
  const Family& family = config.family;
  const auto [path, file] = read_weights(dir);
  auto model = std::make_unique<Transformer>(spec);
  std::set<std::string> used;
  std::map<const Parameter*, int64_t> filled;  // rows of those that come in parts
  for (const WeightName& w : family.weights(spec)) {
    Parameter* p = model->parameters().find(w.engine);
    check(p != nullptr, "{}: '{}' has no parameter '{}'", path, w.file, w.engine);
    if (w.file.empty()) {
      if (!p->value.defined()) p->value = Tensor::zeros(p->shape, DType::f32);
      std::memset(static_cast<std::byte*>(p->value.raw()) + w.first_row * (p->value.bytes() / p->shape[0]), 0,
                  static_cast<size_t>(w.rows * (p->value.bytes() / p->shape[0])));
      filled[p] += w.rows;
      continue;
    }
    const auto it = find_tensor(file, w, family.prefix);
    check(it != file.tensors.end(), "{}: tensor '{}' is missing", path, w.file);
    const Tensor& stored = it->second;
    const std::string at = path + ": tensor '" + it->first + "'";
    const Shape shape = file_shape(w, *p);
    check(stored.shape() == shape, "{}: expected {} by {}, got {}", at, shape.text(), config.path,
          stored.shape().text());
    Tensor value = floating(stored, p->kind == ParameterKind::matrix ? compute : DType::f32, at);
    if (!w.shape.empty()) value = value.view(0, plain_shape(w, *p));
    if (w.transposed) value = transposed(value);
    used.insert(it->first);
    if (w.rows == 0) {
      p->value = w.unused > 0           ? value.slice_rows(w.unused, shape[0])
                 : !w.row_order.empty() ? reordered(value, w.row_order, false)
                                        : value;
      continue;
    }
    if (!p->value.defined()) p->value = Tensor::empty(p->shape, value.dtype());
    const int64_t row = p->value.bytes() / p->shape[0];
    std::memcpy(static_cast<std::byte*>(p->value.raw()) + w.first_row * row, value.raw(), w.rows * row);
    filled[p] += w.rows;
  }
  for (const auto& [p, rows] : filled)
    check(rows == p->shape[0], "{}: parts of '{}' are missing", path, p->name);
  for (const auto& [name, tensor] : file.tensors)
    check(used.contains(name) || family.ignores(spec, name),
          "{}: tensor '{}' belongs to no parameter of a {} model", path, name, family.model_type);
  return model;
}

SpecialIds load_special_ids(const std::string& dir) {
  SpecialIds ids;
  for (const char* name : {"/config.json", "/generation_config.json"}) {
    const std::string path = dir + name;
    if (!file_exists(path)) continue;
    const Json json = parse_json(read_file(path), path);
    const JsonField root(json, path);
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    if (const auto id = root.find("bos_token_id")) ids.bos = id->integer(0, kMost);
    if (const auto id = root.find("decoder_start_token_id")) ids.decoder_start = id->integer(0, kMost);
    if (const auto id = root.find("pad_token_id")) ids.pad = id->integer(0, kMost);
    if (const auto id = root.find("eos_token_id"))
      ids.eos = id->json().is_array() ? id->integers() : std::vector<int64_t>{id->integer(0, kMost)};
    for (const int64_t id : ids.eos)
      check(id >= 0 && id <= kMost, "{}: eos_token_id: {} is not a token id", path, id);
  }
  return ids;
}

std::vector<std::pair<std::string, Tensor>> named_tensors(const Transformer& model,
                                                          Tensor (*pick)(const Parameter&)) {
  std::map<std::string, const Parameter*> parameters;
  for (const Parameter& p : model.parameters().all()) parameters[p.name] = &p;
  std::vector<std::pair<std::string, Tensor>> out;
  for (const WeightName& w : family_for(model.spec()).weights(model.spec())) {
    if (w.file.empty()) continue;
    const Parameter& p = *parameters.at(w.engine);
    Tensor x = convert(pick(p).detach(), DType::f32);
    if (w.rows > 0) x = x.slice_rows(w.first_row, w.first_row + w.rows);
    if (!w.row_order.empty()) x = reordered(x, w.row_order, true);
    if (w.unused > 0) {
      Tensor whole = Tensor::zeros(plain_shape(w, p), DType::f32);
      std::memcpy(static_cast<std::byte*>(whole.raw()) + w.unused * x.width() * 4, x.raw(), x.bytes());
      x = whole;
    }
    if (w.transposed) x = transposed(x);
    out.emplace_back(w.file, w.shape.empty() ? x : x.view(0, file_shape(w, p)));
  }
  return out;
}

void save_model(const std::string& dir, const Transformer& model, const SpecialIds& ids) {
  OrderedJson config = family_for(model.spec()).write_config(model.spec());
  OrderedJson generation = OrderedJson::object();
  const auto add = [&](const char* key, int64_t id) {
    if (id < 0) return;
    config[key] = id;
    generation[key] = id;
  };
  add("bos_token_id", ids.bos);
  if (ids.eos.size() == 1)
    add("eos_token_id", ids.eos[0]);
  else if (!ids.eos.empty())
    config["eos_token_id"] = generation["eos_token_id"] = ids.eos;
  add("pad_token_id", ids.pad);
  add("decoder_start_token_id", ids.decoder_start);
  write_file_atomically(dir + "/config.json", config.dump(2) + "\n");
  write_file_atomically(dir + "/generation_config.json", generation.dump(2) + "\n");
  if (model.spec().lora.any()) return save_adapters(dir, model);
  write_safetensors(
      dir + "/model.safetensors",
      named_tensors(model, [](const Parameter& p) { return p.master.defined() ? p.master : p.value; }),
      {{"format", "pt"}});
}

}  // namespace qkv
