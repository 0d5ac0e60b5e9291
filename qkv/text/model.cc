#include "qkv/text/model.h"

#include <array>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/bpe.h"
#include "qkv/text/unigram.h"
#include "qkv/text/word_level.h"
#include "qkv/text/word_piece.h"

namespace qkv::text {

namespace {

// Older files lack "type"; the model is recognized by fields that only it has.
std::string type_of(const JsonField& field) {
  if (field.find("type") || !field.find("vocab")) return field["type"].string();
  if (field.find("merges")) return "BPE";
  if (field["vocab"].json().is_array()) return "Unigram";
  return field.find("max_input_chars_per_word") || field.find("continuing_subword_prefix") ? "WordPiece"
                                                                                           : "WordLevel";
}

}  // namespace

std::unique_ptr<Model> parse_model(const JsonField& field) {
  static constexpr std::array<std::string_view, 4> kSupported = {"BPE", "WordPiece", "Unigram", "WordLevel"};
  const std::string type = type_of(field);
  if (type == "BPE") return std::make_unique<Bpe>(field);
  if (type == "WordPiece") return std::make_unique<WordPiece>(field);
  if (type == "Unigram") return std::make_unique<Unigram>(field);
  if (type == "WordLevel") return std::make_unique<WordLevel>(field);
  field["type"].refuse_type(type, kSupported);
}

}  // namespace qkv::text
