#include "qkv/convert/gguf_adapter.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/convert/gguf_file.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/gguf/adapter.h"
#include "qkv/io/gguf/directory.h"
#include "qkv/io/model_dir.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

Json config_of(const std::string& dir) {
  const std::string path = dir + "/config.json";
  return parse_json(read_file(path), path);
}

Tensor times(const Tensor& x, float factor) {
  Tensor out = x.clone();
  for (float& v : out.mutable_values<float>()) v *= factor;
  return out;
}

// The last part of a module's name: "q_proj" of "model.layers.0.self_attn.q_proj".
std::string last_part(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

// The targets that select these modules: the last parts of their names, or else whole names.
std::vector<std::string> targets_of(const GgufAdapter& adapter, const ModelSpec& spec) {
  std::set<std::string> ends, names;
  for (const auto& [name, pair] : adapter.modules) {
    ends.insert(last_part(name));
    names.insert(name);
  }
  ModelSpec by_ends = spec;
  by_ends.lora.targets = {ends.begin(), ends.end()};
  if (adapters_of(by_ends).size() == adapter.modules.size()) return by_ends.lora.targets;
  return {names.begin(), names.end()};
}

// The most frequent rank.
int64_t usual_rank(const GgufAdapter& adapter) {
  std::map<int64_t, size_t> times;
  for (const auto& [name, pair] : adapter.modules) ++times[pair.a.dim(0)];
  return std::ranges::max_element(times, {}, [](const auto& entry) { return entry.second; })->first;
}

}  // namespace

bool is_gguf_adapter_file(const std::string& path) {
  return is_gguf(path) && is_gguf_adapter(read_gguf(path));
}

void save_gguf_adapter(const std::string& dir, const std::string& to) {
  const LoraSpec lora = read_adapter_config(dir);
  check(lora.alpha > 0, "{}: lora_alpha: 0 has no counterpart in GGUF files", dir);
  GgufAdapter adapter{.alpha = lora.alpha, .modules = {}};
  for (const AdapterModule& m : read_adapter_modules(dir)) {
    const auto written = static_cast<float>(lora.alpha) / static_cast<float>(m.a.dim(0));
    adapter.modules[m.name] = {m.a, m.scale == written ? m.b : times(m.b, m.scale / written)};
  }
  write_gguf_atomically(to, gguf_of_adapter(adapter, config_of(lora.base)));
}

void save_adapter_of_gguf(const std::string& from, const std::string& base, const std::string& to) {
  const std::string dir = resolve_model_dir(base);
  ModelSpec spec = load_spec(dir);
  check(!spec.lora.any(), "{}: is an adapter itself", base);
  const GgufAdapter adapter = adapter_of_gguf(read_gguf(from), config_of(dir));
  spec.lora.base = fs::absolute(dir).lexically_normal().string();
  spec.lora.rank = usual_rank(adapter);
  spec.lora.alpha =
      adapter.alpha > 0 ? static_cast<float>(adapter.alpha) : static_cast<float>(spec.lora.rank);
  std::vector<AdapterModule> modules;
  for (const auto& [name, pair] : adapter.modules) {
    const int64_t rank = pair.a.dim(0);
    if (rank != spec.lora.rank) {
      spec.lora.ranks.emplace_back(name, rank);
      if (adapter.alpha == 0) spec.lora.alphas.emplace_back(name, static_cast<float>(rank));
    }
    modules.push_back({name, pair.a, pair.b});
  }
  spec.lora.targets = targets_of(adapter, spec);
  spec.lora.adapters = adapters_of(spec);
  write_directory_atomically(to, [&](const std::string& at) { write_adapter_modules(at, spec, modules); });
}

}  // namespace qkv
