// Decoders: from tokens to text.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace qkv {
class JsonField;
}

namespace qkv::text {

// Turns the strings of tokens into the text they stand for.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // Rewrites the tokens; the output of the last stage is concatenated.
  virtual void decode(std::vector<std::string>& tokens) const = 0;
  virtual nlohmann::ordered_json to_json() const = 0;
};

// From its object in tokenizer.json: ByteLevel, ByteFallback, Metaspace, BPEDecoder, WordPiece, Replace,
// Strip, Fuse, Sequence.
std::unique_ptr<Decoder> parse_decoder(const JsonField& field);

}  // namespace qkv::text
