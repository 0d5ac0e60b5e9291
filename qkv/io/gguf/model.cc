#include "qkv/io/gguf/model.h"

#include <algorithm>
#include <cmath>

#include "qkv/io/family/family.h"
#include "qkv/io/gguf/adapter.h"
#include "qkv/io/gguf/rotary.h"
#include "qkv/io/gguf/tensors.h"

namespace qkv {
namespace {

constexpr const char* kEmbedding = "token_embd.weight";
constexpr const char* kOutput = "output.weight";

// Keys below every prefix that do not change a result.
constexpr std::string_view kHarmless[] = {"vocab_size", "rope.scaling.finetuned", "tensor_data_layout",
                                          "pooling_type"};

const GgufArchitecture& architecture_of(const Gguf& file) {
  const std::string& name = file.string("general.architecture");
  if (const GgufArchitecture* a = find_gguf_architecture(name)) return *a;
  std::string all;
  for (const std::string_view known : gguf_architectures())
    all += fmt::format("{}{}", all.empty() ? "" : ", ", known);
  fail("{}: the architecture '{}' is not supported; qkv reads {}", file.path, name.substr(0, 60), all);
}

bool same_numbers(double a, double b) {
  return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b));
}

// Equal, but for numbers that files have as f32.
bool same_values(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return same_numbers(a.get<double>(), b.get<double>());
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (a.is_array()) return std::equal(a.begin(), a.end(), b.begin(), same_values);
  if (!a.is_object()) return a == b;
  for (const auto& [key, value] : a.items())
    if (!b.contains(key) || !same_values(value, b.at(key))) return false;
  return true;
}

// Fields that only training reads.
bool is_of_training(std::string_view field) {
  for (const std::string_view part : {"dropout", "pdrop", "initializer_range", "aux_loss"})
    if (field.find(part) != std::string_view::npos) return true;
  return false;
}

Json read_field(const GgufKeys& keys, const GgufField& field, const char* key) {
  if (field.kind == GgufFieldKind::integer) return keys.integer(key);
  if (field.kind == GgufFieldKind::flag) return keys.flag(key);
  return keys.number(key);
}

void read_fields(const GgufKeys& keys, const GgufArchitecture& a, Json& c) {
  for (const GgufField& field : a.fields) {
    const char* key = field.key;
    if (!keys.has(key)) {
      if (!field.required) continue;
      if (field.otherwise != nullptr) key = field.otherwise;
    }
    const Json value = read_field(keys, field, key);
    if (const auto other = c.find(field.field); other != c.end())
      check(*other == value, "{}: key '{}': another key says {}", keys.file().path, keys.full(key),
            other->dump());
    c[field.field] = value;
  }
}

void write_fields(const Json& written, const Json& given, const GgufArchitecture& a, GgufKeyWriter& keys) {
  for (const GgufField& field : a.fields) {
    const Json& from = written.contains(field.field) ? written : given;
    if (!from.contains(field.field) || from.at(field.field).is_null()) continue;
    const Json& value = from.at(field.field);
    if (field.kind == GgufFieldKind::integer)
      keys.integer(field.key, value.get<int64_t>());
    else if (field.kind == GgufFieldKind::flag)
      keys.flag(field.key, value.get<bool>());
    else
      keys.number(field.key, value.get<double>());
  }
}

// Adds the width of a head where rotary positions need it: the fields of an architecture may not have it.
void add_head_width(const GgufKeys& keys, const GgufArchitecture& a, Json& c) {
  if (a.rotary.base == nullptr || c.contains("head_dim")) return;
  const int64_t heads = c.at("num_attention_heads").get<int64_t>();
  check(heads > 0, "{}: key '{}': there are no heads", keys.file().path, keys.full("attention.head_count"));
  c["head_dim"] = c.at("hidden_size").get<int64_t>() / heads;
}

// A config.json as the family writes it.
Json written_by(const Family& family, const ModelSpec& spec) {
  Json c = Json::parse(config_of(family, spec).dump());
  if (!c.contains("head_dim") && spec.attention.heads > 0) c["head_dim"] = spec.attention.d_qk;
  return c;
}

// Throws Error naming the first field that reads back as another.
void expect_read_back(const Json& written, const Json& read) {
  Json all = written;
  all.update(read);
  for (const auto& [field, unused] : all.items()) {
    if (is_of_training(field)) continue;
    const Json ours = written.value(field, Json()), theirs = read.value(field, Json());
    check(same_values(ours, theirs),
          "gguf: {}: {} cannot be expressed in files of this architecture, only {}", field, ours.dump(),
          theirs.dump());
  }
}

}  // namespace

Json config_of_gguf(const Gguf& file) {
  check(!is_gguf_adapter(file),
        "{}: it holds an adapter: qkv convert {} --base MODEL --out DIR makes a directory of it", file.path,
        file.path);
  const GgufArchitecture& a = architecture_of(file);
  const GgufKeys keys(file);
  Json c = Json::object();
  const Weight* embedding = file.tensor(kEmbedding);
  check(embedding != nullptr && embedding->shape().rank() == 2, "{}: tensor '{}': expected a matrix",
        file.path, kEmbedding);
  c["vocab_size"] = embedding->dim(0);
  c["tie_word_embeddings"] = file.tensor(kOutput) == nullptr;
  read_fields(keys, a, c);
  add_head_width(keys, a, c);
  read_gguf_rotary(keys, a, c);
  read_gguf_windows(keys, a, c);
  a.read(keys, c);
  check(keys.flag_or("attention.causal", true) == a.causal, "{}: key '{}': only {} is supported for {}",
        file.path, keys.full("attention.causal"), a.causal, a.name);
  for (const std::string_view key : kHarmless) keys.has(key);
  for (const std::string_view key : a.harmless) keys.has(key);
  keys.expect_all_known();
  return c;
}

GgufModel model_of_gguf(const Gguf& file) {
  GgufModel model{.config = config_of_gguf(file), .tensors = {}, .as_in_engine = {}};
  model.tensors = read_gguf_tensors(file, gguf_naming_of(model.config, file.path), model.as_in_engine);
  return model;
}

GgufParts gguf_of_model(const Json& config, const std::vector<std::pair<std::string, Weight>>& tensors) {
  const GgufNaming naming = gguf_naming_of(config, "config.json");
  const GgufArchitecture* a = &naming.architecture;
  const Json written = written_by(naming.family, naming.spec);
  GgufParts parts;
  parts.metadata.emplace_back("general.architecture", GgufValue::of(a->name));
  GgufKeyWriter keys{std::string(a->name), parts};
  write_fields(written, config, *a, keys);
  write_gguf_rotary(written, *a, keys);
  write_gguf_windows(written, *a, keys);
  if (!a->causal) keys.flag("attention.causal", false);
  if (a->write != nullptr) a->write(written, keys);
  write_gguf_tensors(tensors, naming, parts);
  const Json back =
      config_of_gguf({.path = "the GGUF file", .metadata = parts.metadata, .tensors = parts.tensors});
  expect_read_back(written, written_by(naming.family, gguf_naming_of(back, "config.json").spec));
  return parts;
}

}  // namespace qkv
