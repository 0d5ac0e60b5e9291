// The safetensors format: a length, a JSON header, the bytes of the tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <span>
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

// Writes a file whose values come in pieces, so that they never need to be in memory at once. Not atomic: see
// write_directory_atomically().
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
  };
  // Creates `path` with its header. Throws Error if two tensors have one name. Each call throws Error if the
  // disk does not take what it writes.
  SafetensorsWriter(std::string path, const std::vector<Entry>& entries,
                    const std::map<std::string, std::string>& metadata = {});
  // Appends the next bytes of the tensors, which follow each other in the order of the entries.
  void write(std::span<const std::byte> bytes);
  // To be called after the last byte. Throws Error if bytes are missing.
  void finish();

 private:
  void expect_written() const;

  std::string path_;
  std::ofstream out_;
  int64_t left_ = 0;  // bytes still to come
};

// Writes `path` in one pass, in the order given. Not atomic, either.
void write_safetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace qkv
