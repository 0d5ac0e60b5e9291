// Weights of a model directory: one file, or an index and the files that it names; or of a GGUF file.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "qkv/io/container/tensor_file.h"

namespace qkv {

// A directory's tensors by name, and the file that lists them.
struct ModelWeights {
  std::string path;  // model.safetensors or pytorch_model.bin, or an index of such files
  TensorFile file;
};

// Reads a file of tensors: .safetensors, or else one of torch.save().
TensorFile read_tensors(const std::string& path);

// Path of a directory's weights; empty if it has none. Safetensors come first.
std::string weights_path(const std::string& dir);

// Reads a directory's weights; tensors are views of the mapped files. Throws Error for files whose tensors
// differ from the index.
ModelWeights read_weights(const std::string& dir);

// Parses "weight_map" of an index: the file of each tensor. The document is not trusted: files must be in
// the same directory. Errors call it `where`.
std::map<std::string, std::string> parse_weight_map(std::string_view document, const std::string& where);

}  // namespace qkv
