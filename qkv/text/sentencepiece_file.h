// Model files of SentencePiece (ModelProto of its sentencepiece_model.proto).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::text {

// The contents of a .model file, with the format's defaults and field names.
struct SentencePieceFile {
  enum class PieceType { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  enum class ModelType { kUnigram = 1, kBpe, kWord, kChar };
  // An entry of the vocabulary.
  struct Piece {
    std::string piece;
    float score = 0;
    PieceType type = PieceType::kNormal;
  };
  std::vector<Piece> pieces;

  ModelType model_type = ModelType::kUnigram;
  bool treat_whitespace_as_suffix = false;
  bool byte_fallback = false;
  std::string unk_surface = " \xE2\x81\x87 ";  // decoded text of an unknown piece

  std::string precompiled_charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// Parses the bytes of a file. Throws Error naming `file` if they are not such a model: pieces that are
// empty, repeated or not UTF-8, no unknown piece or several, an incomplete set of byte pieces.
SentencePieceFile parse_sentencepiece(std::string_view bytes, const std::string& file);

// The bytes of such a file.
std::string serialize_sentencepiece(const SentencePieceFile& model);

}  // namespace qkv::text
