// The first stage: normalizers, which rewrite the text.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "qkv/text/aligned_text.h"

namespace qkv {
class JsonField;
}

namespace qkv::text {

// Rewrites a text and keeps track of the source of every byte.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual AlignedText normalize(AlignedText text) const = 0;
  // True if the normalizer spells bytes in the byte alphabet.
  virtual bool spells_bytes() const { return false; }
  virtual nlohmann::ordered_json to_json() const = 0;
};

// From its object in tokenizer.json: NFC, NFD, NFKC, NFKD, Lowercase, BertNormalizer, Replace, Precompiled,
// Prepend, Strip, StripAccents, Nmt, ByteLevel, Sequence.
std::unique_ptr<Normalizer> parse_normalizer(const JsonField& field);

}  // namespace qkv::text
