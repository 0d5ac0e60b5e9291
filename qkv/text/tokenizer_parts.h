// The parts of a Tokenizer, for the files of this folder that build one.
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

// File names and contents.
using TokenizerFiles = std::vector<std::pair<std::string, std::string>>;

// The stages in the order in which they run; all but the model may be absent.
struct TokenizerParts {
  // Added before every text, even an empty one, before added tokens are matched: the meaning of
  // add_prefix_space for GPT-2's vocab.json. (ByteLevel's add_prefix_space leaves texts that begin with a
  // space unchanged.)
  std::string text_prefix;
  AddedTokens added_tokens;
  std::unique_ptr<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<Model> model;
  std::unique_ptr<PostProcessor> post_processor;
  std::unique_ptr<Decoder> decoder;

  // The files that the tokenizer was built from, if tokenizer.json cannot express it. They are saved
  // instead.
  TokenizerFiles files;

  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
};

}  // namespace qkv::text
