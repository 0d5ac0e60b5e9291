#include "qkv/io/gguf/directory.h"

#include <filesystem>

#include "qkv/base/json_value.h"
#include "qkv/base/mounted_files.h"
#include "qkv/io/gguf/model.h"
#include "qkv/io/gguf/tokenizer.h"

namespace qkv {

bool is_gguf(const std::string& path) {
  std::error_code ignored;
  return path.ends_with(".gguf") && std::filesystem::is_regular_file(path, ignored);
}

void mount_gguf(const std::string& path) {
  if (!is_gguf(path) || is_mounted(path)) return;
  const Gguf file = read_gguf(path);
  std::map<std::string, std::string> files;
  files["config.json"] = config_of_gguf(file).dump(2) + "\n";
  if (file.has("tokenizer.ggml.model") && file.string("tokenizer.ggml.model") != "none") {
    const GgufTokenizer from = tokenizer_of_gguf(file);
    files["tokenizer.json"] = from.tokenizer.to_json();
    if (!from.config.empty()) files["tokenizer_config.json"] = from.config;
    if (!from.sentencepiece.empty()) files["tokenizer.model"] = from.sentencepiece;
    if (!from.warning.empty()) files[kGgufNotes] = from.warning;
    OrderedJson ids = OrderedJson::object();
    if (from.bos >= 0) ids["bos_token_id"] = from.bos;
    if (!from.eos.empty()) ids["eos_token_id"] = from.eos;
    if (from.pad >= 0) ids["pad_token_id"] = from.pad;
    files["generation_config.json"] = ids.dump(2) + "\n";
  }
  mount_files(path, std::move(files));
}

TensorFile read_gguf_tensors_of(const std::string& path) {
  GgufModel model = model_of_gguf(read_gguf(path));
  TensorFile file;
  file.mapped = true;
  file.in_engine_order = std::move(model.as_in_engine);
  for (auto& [name, weight] : model.tensors) {
    if (weight.is_packed())
      file.packed.emplace(name, weight);
    else
      file.tensors.emplace(name, weight.dense());
  }
  return file;
}

}  // namespace qkv
