// Hostile files of torch.save(): whatever the bytes, reading ends or throws qkv::Error, and tensors lie
// within the file or in memory of their own.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/io/container/pytorch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy of exactly this size, so that a sanitizer sees every step outside.
  const auto copy = std::make_shared<std::vector<std::byte>>(size);
  for (size_t i = 0; i < size; ++i) (*copy)[i] = std::byte{data[i]};
  try {
    const qkv::TensorFile file = qkv::parse_pytorch(copy->data(), size, copy, "pytorch_model.bin");
    unsigned sum = 0;
    for (const auto& [name, tensor] : file.tensors)
      for (const std::byte b : tensor.value_bytes()) sum += static_cast<unsigned>(b);
    volatile unsigned sink = sum;
    (void)sink;
  } catch (const qkv::Error&) {
  }
  return 0;
}
