// The safetensors format: a length, a JSON header, the bytes of the tensors.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/base/file.h"
#include "qkv/io/container/tensor_file.h"

namespace qkv {

// Reads a file. Tensors are views of the mapped file and keep it mapped. The file is not trusted: every
// count, offset and name is checked against its size. Throws Error naming the file and the tensor if the
// header is wrong.
TensorFile read_safetensors(const std::string& path);

// The same for memory that `owner` keeps alive.
TensorFile parse_safetensors(const std::byte* data, size_t size, const std::shared_ptr<const void>& owner,
                             const std::string& where);

// Writes `path` in one pass, in the order given. Not atomic: see write_directory_atomically().
void write_safetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace qkv
