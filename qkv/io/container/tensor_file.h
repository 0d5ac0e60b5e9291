// The tensors of a file by name, whatever its format.
#pragma once

#include <map>
#include <set>
#include <string>

#include "qkv/tensor/weight.h"

namespace qkv {

// Contents of a safetensors file, of one of torch.save(), or of a GGUF file under Hugging Face's names. Dense
// tensors are apart from quantised ones and from stacks of them; a name is in one map.
struct TensorFile {
  std::map<std::string, Tensor> tensors = {};
  std::map<std::string, Weight> packed = {};
  // Tensors that lie as the engine's parameters do, where the family's files have other rows or columns.
  std::set<std::string> in_engine_order = {};
  std::map<std::string, std::string> metadata = {};
  bool mapped = false;  // the tensors are views of mapped files
};

// After a weight of a mapped file was copied, frees the memory of the file's pages. A weight that was copied
// when it was read, because the file is not aligned, is left alone.
void release_copied(const Weight& stored, const Weight& value);

}  // namespace qkv
