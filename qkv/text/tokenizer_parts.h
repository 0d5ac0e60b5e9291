// What a Tokenizer is made of; for the files of this folder that put one together.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qkv/text/added_tokens.h"
#include "qkv/text/decoder.h"
#include "qkv/text/lengths.h"
#include "qkv/text/model.h"
#include "qkv/text/normalizer.h"
#include "qkv/text/post_processor.h"
#include "qkv/text/pre_tokenizer.h"

namespace qkv::text {

// Names and contents.
using TokenizerFiles = std::vector<std::pair<std::string, std::string>>;

// The stages in the order in which a text meets them; every one but the model may be absent.
struct TokenizerParts {
  // Put before every text, even an empty one, before added tokens are looked for: what add_prefix_space of
  // GPT-2's vocab.json form means. (ByteLevel's add_prefix_space spares texts that begin with a space.)
  std::string text_prefix;
  AddedTokens added_tokens;
  std::unique_ptr<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<Model> model;
  std::unique_ptr<PostProcessor> post_processor;
  std::unique_ptr<Decoder> decoder;

  // What the tokenizer was made from, where tokenizer.json has no words for it: then
  // these are saved instead.
  TokenizerFiles files;

  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
};

}  // namespace qkv::text
