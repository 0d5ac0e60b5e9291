// Hostile safetensors files: whatever the bytes, reading ends or throws qkv::Error, and tensors lie within
// the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/io/container/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy of exactly this size, so that a sanitizer sees every step outside.
  const auto copy = std::make_shared<std::vector<std::byte>>(size);
  for (size_t i = 0; i < size; ++i) (*copy)[i] = std::byte{data[i]};
  try {
    const qkv::TensorFile file = qkv::parse_safetensors(copy->data(), size, copy, "model.safetensors");
    size_t total = 0;
    unsigned sum = 0;
    for (const auto& [name, tensor] : file.tensors) {
      total += tensor.bytes();
      if (total > size) std::abort();  // no two tensors share a byte
      const auto* bytes = static_cast<const unsigned char*>(tensor.raw());
      for (size_t i = 0; i < tensor.bytes(); ++i) sum += bytes[i];
    }
    volatile unsigned sink = sum;
    (void)sink;
  } catch (const qkv::Error&) {
  }
  return 0;
}
