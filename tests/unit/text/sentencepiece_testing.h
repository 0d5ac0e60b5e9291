// Small SentencePiece models, written field by field.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::testing {

inline std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
inline std::string number_field(uint64_t field, uint64_t value) {
  return varint(field << 3) + varint(value);
}
inline std::string bytes_field(uint64_t field, std::string_view bytes) {
  return varint(field << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}
inline std::string float_field(uint64_t field, float value) {
  std::string bytes = varint(field << 3 | 5);
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(std::bit_cast<uint32_t>(value) >> (8 * i));
  return bytes;
}

enum : uint64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };  // types of pieces
enum : uint64_t { kUnigram = 1, kBpe, kWord, kChar };                               // types of models

inline std::string piece_field(std::string_view piece, float score, uint64_t type = kNormal) {
  return bytes_field(1, bytes_field(1, piece) + float_field(2, score) + number_field(3, type));
}

// A double array and its strings for one rule: the byte `from` becomes `to`.
inline std::string charsmap_of_one(char from, std::string_view to) {
  std::vector<uint32_t> units(512, 0x80000000);  // a label that no byte has
  const auto byte = static_cast<unsigned char>(from);
  units[0] = 256U << 10;                                            // the root's children begin at 256
  units[256 ^ byte] = byte | 1U << 8 | (256U ^ byte ^ 300U) << 10;  // the leaf is unit 300
  units[300] = 0x80000000;                                          // the replacement begins at 0
  std::string bytes;
  for (const uint32_t word : {static_cast<uint32_t>(units.size() * 4)})
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(word >> (8 * i));
  for (const uint32_t unit : units)
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(unit >> (8 * i));
  return bytes + std::string(to) + '\0';
}

// A model of `type` with <unk>, <s> and </s> before `pieces` (fields by piece_field). `normalizer`: further
// fields of its NormalizerSpec; `trainer`: of its TrainerSpec.
inline std::string sentencepiece_model(uint64_t type, std::string_view pieces,
                                       const std::string& normalizer = "", const std::string& trainer = "") {
  return piece_field("<unk>", 0, kUnknown) + piece_field("<s>", 0, kControl) +
         piece_field("</s>", 0, kControl) + std::string(pieces) +
         bytes_field(2, number_field(3, type) + trainer) + bytes_field(3, normalizer);
}

}  // namespace qkv::testing
