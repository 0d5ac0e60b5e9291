// Hostile tokenizer.json: whatever the bytes, parsing, encoding and decoding end or throw qkv::Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "qkv/base/error.h"
#include "qkv/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kText =
      "Hello  world's <|endoftext|> caf\xC3\xA9 123\n\n \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\xA6\x99";
  try {
    const auto tokenizer =
        qkv::text::Tokenizer::from_json({reinterpret_cast<const char*>(data), size}, "tokenizer.json");
    const auto again = qkv::text::Tokenizer::from_json(tokenizer.to_json(), "tokenizer.json");
    const auto encoding = again.encode_pair(kText, kText, true);
    again.decode(encoding.ids);
    qkv::text::StreamDecoder stream(again);
    for (const auto id : encoding.ids) stream.add(id);
    stream.finish();
    again.encode("\xFF\xC0 bytes", true);
  } catch (const qkv::Error&) {
  }
  return 0;
}
