// The texts of a run as token streams, and the tokenizer that makes them.
#pragma once

#include <functional>
#include <span>

#include "qkv/data/pairs.h"
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
Corpus load_corpus(const TrainConfig& config, const text::Tokenizer* given = nullptr);

// Trains a tokenizer that has the special tokens of an objective, and for an encoder puts them around texts.
text::Tokenizer train_tokenizer(const TokenizerConfig& config, std::span<const std::string_view> texts,
                                Objective objective);
// The tokenizer of a run: `given`, that of the model it begins with, one that is named, or a trained one.
text::Tokenizer tokenizer_for(const TrainConfig& config, const text::Tokenizer* given,
                              const std::function<text::Tokenizer()>& trained);

// The ids of <extra_id_0>, <extra_id_1>, ... Throws Error where the tokenizer has none.
std::vector<int32_t> sentinels(const text::Tokenizer& tokenizer);

// The ids of [CLS] and [SEP], or <s> and </s>, and of the mask. Throws Error where the tokenizer lacks one.
struct EncoderTokens {
  int32_t first, last, mask;
};
EncoderTokens encoder_tokens(const text::Tokenizer& tokenizer);

// Sources and their targets.
struct PairTexts {
  std::vector<std::string> source, target;
  std::string path;  // of the files, for errors
};

// The rows of files, by the columns that `data` names, or the lines of files beside those of `targets`. Pairs
// with an empty side are left out.
PairTexts read_pairs(const std::vector<std::string>& files, const std::vector<std::string>& targets,
                     const DataConfig& data);
PairStream tokenize_pairs(const PairTexts& texts, const text::Tokenizer& tokenizer);

// Pairs of a sequence-to-sequence run. One tokenizer has both sides' vocabulary.
struct PairCorpus {
  text::Tokenizer tokenizer;
  PairStream train, valid;
  SequenceEnds ends;
  std::string hash;       // of the training tokens
  PairTexts valid_texts;  // what `valid` was before there were tokens
};

// Reads the files of a configuration; trains the tokenizer on both sides unless one is named or given.
PairCorpus load_pairs(const TrainConfig& config, const text::Tokenizer* given = nullptr);

// The ids of <s> and </s>. Throws Error where the tokenizer lacks either.
SequenceEnds sequence_ends(const text::Tokenizer& tokenizer);

// One text file's documents as a stream. Errors name the file.
TokenStream tokenize_file(const std::string& path, const std::string& separator,
                          const text::Tokenizer& tokenizer);

// The id of <|endoftext|>, which ends every document where the tokenizer has it; -1 where not.
int32_t end_of_text(const text::Tokenizer& tokenizer);

}  // namespace qkv
