// The texts of a run as token streams, and the tokenizer that makes them.
#pragma once

#include "qkv/data/dataset.h"
#include "qkv/text/tokenizer.h"
#include "qkv/train/config.h"
#include "qkv/train/corpus_cache.h"

namespace qkv {

// What a run learns from, and what it is judged by.
struct Corpus {
  text::Tokenizer tokenizer;
  TokenizedText text;
  bool cached = false;  // the tokens were those of an earlier run
};

// Reads the files, or what the cache holds of them; trains the tokenizer on the training text unless one is
// named or given.
Corpus load_corpus(const DataConfig& data, const TokenizerConfig& tokenizer,
                   const text::Tokenizer* given = nullptr);

// One text file's documents as a stream. Errors name the file.
TokenStream tokenize_file(const std::string& path, const std::string& separator,
                          const text::Tokenizer& tokenizer);

// The id of <|endoftext|>, which ends every document where the tokenizer has it; -1 where not.
int32_t end_of_text(const text::Tokenizer& tokenizer);

}  // namespace qkv
