// Hostile .model files: whatever the bytes, parsing, encoding and decoding end or throw qkv::Error.
#include <cstddef>
#include <cstdint>
#include <string>

#include "qkv/base/error.h"
#include "qkv/text/sentencepiece_classes.h"
#include "qkv/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string model(reinterpret_cast<const char*>(data), size);
  for (const char* name : {"SentencePieceProcessor", "LlamaTokenizer", "T5Tokenizer", "AlbertTokenizer",
                           "XLNetTokenizer", "XLMRobertaTokenizer"}) {
    try {
      const std::string config = std::string(R"({"legacy": false, "tokenizer_class": ")") + name + "\"}";
      const qkv::text::Tokenizer tokenizer(qkv::text::sentencepiece_parts(
          {{"spiece.model", model}, {"tokenizer_config.json", config}}, "fuzz"));
      const auto ids = tokenizer.encode(" ab  1,b caf\xC3\xA9 X<s>\xE2\x96\x81 \xF0\x9F\xA6\x99", true).ids;
      tokenizer.decode(ids);
      qkv::text::StreamDecoder stream(tokenizer);
      for (const auto id : ids) stream.add(id);
      stream.finish();
    } catch (const qkv::Error&) {
    }
  }
  return 0;
}
