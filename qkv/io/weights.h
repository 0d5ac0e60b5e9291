// The weights of a model directory: one safetensors file, or an index and the files that it names.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "qkv/io/container/safetensors.h"

namespace qkv {

// A directory's tensors by name, and the file that says which there are.
struct ModelWeights {
  std::string path;  // model.safetensors or model.safetensors.index.json
  Safetensors file;
};

// Where a directory keeps its weights; an empty string where it has none.
std::string weights_path(const std::string& dir);

// Reads them; tensors are views of the mapped files. Refuses pytorch_model.bin, which can run code, and files
// that lack a tensor or have another than the index says.
ModelWeights read_weights(const std::string& dir);

// "weight_map" of an index: the file of each tensor. The document is not trusted: files are of its own
// directory. `where` is what errors call it.
std::map<std::string, std::string> parse_weight_map(std::string_view document, const std::string& where);

}  // namespace qkv
