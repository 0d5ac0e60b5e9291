// Files of torch.save(): tables of tensors, in the zip form since PyTorch 1.6 and in the older one.
#pragma once

#include <memory>
#include <string>

#include "qkv/io/container/tensor_file.h"

namespace qkv {

// Reads a file. Nothing in it is executed: besides tensors and plain values (kept out of the result) no class
// is accepted. Tensors of nested dictionaries have their keys joined by dots. Contiguous tensors are views of
// the mapped file. The file is not trusted. Throws Error naming the file and what is wrong.
TensorFile read_pytorch(const std::string& path);

// The same for memory that `owner` keeps alive.
TensorFile parse_pytorch(const std::byte* data, size_t size, const std::shared_ptr<const void>& owner,
                         const std::string& where);

}  // namespace qkv
