// Hostile config.json and model.safetensors.index.json: whatever the bytes, reading ends or throws
// qkv::Error, and what is read is a spec that makes sense, or files beside the index.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "qkv/base/error.h"
#include "qkv/io/model_dir.h"
#include "qkv/io/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view document(reinterpret_cast<const char*>(data), size);
  try {
    qkv::check_spec(qkv::parse_spec(document, "config.json"));
  } catch (const qkv::Error&) {
  }
  try {
    for (const auto& [tensor, file] : qkv::parse_weight_map(document, "index"))
      if (file.find('/') != file.npos || !file.ends_with(".safetensors")) std::abort();
  } catch (const qkv::Error&) {
  }
  return 0;
}
