// Hostile GGUF files: whatever the bytes, reading ends or throws qkv::Error, and tensors lie within the file
// or in memory of their own.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/io/container/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy of exactly this size, so that a sanitizer sees every step outside.
  const auto copy = std::make_shared<std::vector<std::byte>>(size);
  for (size_t i = 0; i < size; ++i) (*copy)[i] = std::byte{data[i]};
  try {
    const qkv::Gguf file = qkv::parse_gguf(copy->data(), size, copy, "model.gguf");
    size_t total = 0;
    unsigned sum = 0;
    for (const auto& [key, value] : file.metadata) {
      total += value.integers.size() + value.numbers.size() + 8 * value.strings.size();
      for (const std::string& text : value.strings) total += text.size();
      if (total > size) std::abort();  // no element without bytes
      if (file.find(key) != &value) std::abort();
    }
    for (const auto& [name, tensor] : file.tensors) {
      total += tensor.bytes();
      if (total > size) std::abort();  // no two tensors share a byte
      if (file.tensor(name) != &tensor) std::abort();
      const auto bytes = tensor.is_quantized() ? tensor.quantized().blocks() : tensor.dense().value_bytes();
      for (const std::byte b : bytes) sum += static_cast<unsigned>(b);
    }
    volatile unsigned sink = sum;
    (void)sink;
  } catch (const qkv::Error&) {
  }
  return 0;
}
