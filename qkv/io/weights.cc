#include "qkv/io/weights.h"

#include <set>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/io/container/pytorch.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/io/gguf/directory.h"

namespace qkv {
namespace {

constexpr const char* kFile = "/model.safetensors";
// In the order in which they are looked for.
constexpr const char* kFiles[] = {kFile, "/model.safetensors.index.json", "/pytorch_model.bin",
                                  "/pytorch_model.bin.index.json"};
constexpr size_t kMostShards = 4096;

}  // namespace

std::string weights_path(const std::string& dir) {
  if (is_gguf(dir)) return dir;
  for (const char* name : kFiles)
    if (file_exists(dir + name)) return dir + name;
  return "";
}

TensorFile read_tensors(const std::string& path) {
  return path.ends_with(".safetensors") ? read_safetensors(path) : read_pytorch(path);
}

std::map<std::string, std::string> parse_weight_map(std::string_view document, const std::string& where) {
  const Json json = parse_json(document, where);
  const JsonField map = JsonField(json, where)["weight_map"];
  std::map<std::string, std::string> files;
  std::set<std::string> shards;
  for (auto it = map.object().begin(); it != map.object().end(); ++it) {
    const JsonField field = map[it.key()];
    const std::string& name = field.string();
    if (!(name.ends_with(".safetensors") || name.ends_with(".bin")) ||
        name.find_first_of(std::string_view("/\\\0", 3)) != name.npos)
      field.refuse("the name of a .safetensors or .bin file beside the index");
    shards.insert(name);
    files.emplace(it.key(), name);
  }
  check(!files.empty(), "{}: weight_map names no tensor", where);
  check(shards.size() <= kMostShards, "{}: weight_map names {} files, more than {}", where, shards.size(),
        kMostShards);
  return files;
}

ModelWeights read_weights(const std::string& dir) {
  const std::string path = weights_path(dir);
  check(!path.empty(), "{}{}: missing", dir, kFile);
  if (is_gguf(path)) return {path, read_gguf_tensors_of(path)};
  if (!path.ends_with(".json")) return {path, read_tensors(path)};
  ModelWeights weights{path, {}};
  weights.file.mapped = true;
  const auto map = parse_weight_map(read_file(path), path);
  std::map<std::string, TensorFile> shards;
  for (const auto& [tensor, name] : map) {
    const std::string shard = fmt::format("{}/{}", dir, name);
    check(file_exists(shard), "{}: tensor '{}' is in {}, which is missing", path, tensor, name);
    if (!shards.contains(name)) shards.emplace(name, read_tensors(shard));
    auto& tensors = shards.at(name).tensors;
    const auto it = tensors.find(tensor);
    check(it != tensors.end(), "{}: tensor '{}' is said to be in {}, which lacks it", path, tensor, name);
    weights.file.tensors.insert(tensors.extract(it));
  }
  for (const auto& [name, shard] : shards)
    check(shard.tensors.empty(), "{}: {} has a tensor '{}' that the index does not know", path, name,
          shard.tensors.begin()->first);
  return weights;
}

}  // namespace qkv
