// The texts of a run as token streams, and their tokenizer.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "qkv/data/pairs.h"
#include "qkv/infer/sequence_ends.h"
#include "qkv/text/tokenizer.h"
#include "qkv/train/config/config.h"
#include "qkv/train/corpora/corpus_cache.h"
#include "qkv/train/corpora/documents.h"
#include "qkv/train/corpora/origin.h"

namespace qkv {

// Training and validation text of a run.
struct Corpus {
  text::Tokenizer tokenizer;
  TokenizedText text;
  bool cached = false;  // true if the tokens came from the cache
};

// Reads the files, or their tokens from the cache. Trains the tokenizer on the training text unless one is
// named or given.
Corpus load_corpus(const TrainConfig& config, const Origin* given = nullptr);

// Trains a tokenizer with the special tokens of these objectives, which share an architecture; for an
// encoder it puts them around texts. `documents`: a language model has many texts (are_documents), so a
// character tokenizer has a token that ends a text and puts it before texts, too.
text::Tokenizer train_tokenizer(const TokenizerConfig& config, std::span<const std::string_view> texts,
                                const std::vector<Objective>& objectives, bool documents = false);
// True if files hold separate documents: in rows, or between separators.
bool are_documents(const DataConfig& data);
// Texts that a tokenizer is trained on: the training part of a run's files, as documents or both sides of
// pairs.
struct TrainingTexts {
  std::vector<std::string_view> texts;
  std::shared_ptr<const void> owner;
};
TrainingTexts training_texts(const TrainConfig& config);
// The tokenizer of a run: that of `given`, else the one that the configuration names, else `trained`().
text::Tokenizer tokenizer_for(const TrainConfig& config, const Origin* given,
                              const std::function<text::Tokenizer()>& trained);

// The ids of <extra_id_0>, <extra_id_1>, ... Throws Error if the tokenizer has none.
std::vector<int32_t> sentinels(const text::Tokenizer& tokenizer);

// The ids of [CLS] and [SEP], or <s> and </s>, and of the mask. Throws Error if the tokenizer lacks one.
struct EncoderTokens {
  int32_t first, last, mask;
};
EncoderTokens encoder_tokens(const text::Tokenizer& tokenizer);

// Sources and their targets.
struct PairTexts {
  std::vector<std::string_view> source, target;
  std::vector<int64_t> lines = {};         // line of each pair in its file, from 1
  std::vector<std::string> files = {};     // all files
  std::vector<size_t> first_of_file = {};  // index of the first pair of each file
  size_t first = 0;                        // index of the first pair in this part
  int64_t skipped = 0;                     // pairs with an empty side
  Skipped filtered = {};                   // pairs that the filters of `data` drop
  Notes notes = {};
  std::shared_ptr<const void> owner;  // owner of the texts, which are in a mapped file

  // FILE:LINE of a pair.
  std::string place(size_t pair) const;
};

// Reads the rows of files, by the columns that `data` names, or the lines of files parallel to those of
// `targets`. Drops pairs with an empty or blank side.
PairTexts read_pairs(const std::vector<std::string>& files, const std::vector<std::string>& targets,
                     const DataConfig& data);
// Keeps the tokens in mapped files, in the cache folder with `cache`, else in the folder for temporary
// files.
PairStream tokenize_pairs(const PairTexts& texts, const text::Tokenizer& tokenizer, bool cache = true);

// Pairs of a sequence-to-sequence run. Both sides share a vocabulary unless the configuration asks for two.
struct PairCorpus {
  text::Tokenizer tokenizer;
  PairStream train, valid;
  SequenceEnds ends;
  std::string hash;       // hash of the training tokens
  PairTexts valid_texts;  // texts of `valid`
  int64_t skipped = 0;    // training and validation pairs with an empty side
  Skipped filtered = {};  // training pairs that the filters drop
  Notes notes = {};       // further notes on the files
};

// Reads the files of a configuration. Trains the tokenizer on both sides, or one on each, unless it is
// named or given.
PairCorpus load_pairs(const TrainConfig& config, const Origin* given = nullptr);

// Splits a document into pieces of at most `bytes` that are encoded one by one, so that memory stays
// bounded. A piece begins with a lone line end between letters or digits if there is one in the second half
// of the window before. Tokenizers that split at spaces then give the tokens of the whole document. A
// tokenizer that puts something before texts puts it before each piece.
std::vector<std::string_view> pieces_to_encode(std::string_view document, size_t bytes = size_t{1} << 20);

// Tokenizes one file's documents in bounded memory. `data` gives the separator, or the column of rows.
// Errors name the file.
TokenStream tokenize_file(const std::string& path, const DataConfig& data, const text::Tokenizer& tokenizer,
                          Notes* notes = nullptr);

// True if a tokenizer's tokens are the 256 bytes, so that it can encode any data.
bool reads_bytes(const text::Tokenizer& tokenizer);

}  // namespace qkv
