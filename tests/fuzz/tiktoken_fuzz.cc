// Hostile rank files: whatever the bytes, reading ends or throws qkv::Error, and what is read encodes text
// and decodes it again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "qkv/base/error.h"
#include "qkv/text/tiktoken_file.h"
#include "qkv/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view contents(reinterpret_cast<const char*>(data), size);
  qkv::text::is_tiktoken_file(contents);
  for (const char* name : {"r50k_base.tiktoken", "cl100k_base.tiktoken"}) {
    try {
      const qkv::text::Tokenizer tokenizer(qkv::text::tiktoken_parts(contents, name));
      const auto encoding = tokenizer.encode("Hello world, aaab 123\n\n abab<|endoftext|>");
      tokenizer.decode(encoding.ids);
    } catch (const qkv::Error&) {
    }
  }
  return 0;
}
