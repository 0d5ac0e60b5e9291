// Hostile models of other programs: whatever the bytes, reading ends or throws qkv::Error. The first byte
// chooses the format.
#include <cstddef>
#include <cstdint>
#include <string>

#include "qkv/base/error.h"
#include "qkv/convert/llama2c.h"
#include "qkv/convert/rwkv_file.h"
#include "qkv/io/container/ctranslate2.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  // A copy of exactly this size, so that a sanitizer sees every step outside.
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 4 == 0) {
      static_cast<void>(qkv::is_ctranslate2(bytes));
      static_cast<void>(qkv::parse_ctranslate2(bytes, "model.bin"));
    } else if (data[0] % 4 == 1) {
      static_cast<void>(qkv::parse_llama2c(bytes, "model.bin"));
    } else if (data[0] % 4 == 2) {
      static_cast<void>(qkv::parse_rwkv(bytes, "model.bin", 16));
    } else {
      static_cast<void>(qkv::sentencepiece_of_llama2c(bytes, 261, "tokenizer.bin"));
    }
  } catch (const qkv::Error&) {
  }
  return 0;
}
