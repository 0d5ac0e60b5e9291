// From SentencePiece's pieces to text.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "qkv/text/decoder.h"
#include "qkv/text/sentencepiece_file.h"

namespace qkv::text {

// Decodes like the library, or like one of transformers' classes around it.
class SentencePieceDecoder : public Decoder {
 public:
  // transformers' classes handle special tokens outside the library and differ in the spaces around them:
  // Llama's (with legacy=true also before them), T5's and ALBERT's. XLNet's and XLM-RoBERTa's do not use
  // the library: they join tokens and turn marks into spaces.
  enum class Style { kPlain, kLlama, kLlamaLegacy, kT5, kAlbert, kXlnet, kXlmRoberta };
  // The style and the tokens that it treats specially.
  struct Options {
    Style style = Style::kPlain;
    std::vector<std::string> special_tokens = {};
    std::vector<std::string> isolated_tokens = {};  // other added tokens, decoded apart from the text
  };

  SentencePieceDecoder(const SentencePieceFile& file, const Options& options);

  void decode(std::vector<std::string>& tokens) const override;
  nlohmann::ordered_json to_json() const override;

 private:
  std::string decode_pieces(const std::vector<std::string>& pieces) const;
  std::string decode_around_special(std::vector<std::string> tokens) const;

  Style style_;
  std::set<std::string, std::less<>> control_, special_, isolated_;
  std::string unk_piece_, unk_surface_;
  bool byte_fallback_, add_dummy_prefix_, remove_extra_whitespaces_;
};

}  // namespace qkv::text
