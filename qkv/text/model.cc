#include "qkv/text/model.h"

#include <array>

#include "qkv/base/json.h"
#include "qkv/text/bpe.h"
#include "qkv/text/unigram.h"
#include "qkv/text/word_level.h"
#include "qkv/text/word_piece.h"

namespace qkv::text {

std::unique_ptr<Model> parse_model(const JsonField& field) {
  static constexpr std::array<std::string_view, 4> kSupported = {"BPE", "WordPiece", "Unigram", "WordLevel"};
  // Files from before the type was written: only BPE has merges.
  const bool old_bpe = !field.find("type") && field.find("merges");
  const std::string type = old_bpe ? "BPE" : field["type"].string();
  if (type == "BPE") return std::make_unique<Bpe>(field);
  if (type == "WordPiece") return std::make_unique<WordPiece>(field);
  if (type == "Unigram") return std::make_unique<Unigram>(field);
  if (type == "WordLevel") return std::make_unique<WordLevel>(field);
  field["type"].refuse_type(type, kSupported);
}

}  // namespace qkv::text
