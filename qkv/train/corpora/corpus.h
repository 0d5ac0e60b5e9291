// The texts of a run as token streams, and the tokenizer that makes them.
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

// What a run learns from, and what it is judged by.
struct Corpus {
  text::Tokenizer tokenizer;
  TokenizedText text;
  bool cached = false;  // the tokens were those of an earlier run
};

// Reads the files, or what the cache holds of them; trains the tokenizer on the training text unless one is
// named or given.
Corpus load_corpus(const TrainConfig& config, const Origin* given = nullptr);

// Trains a tokenizer that has the special tokens of these objectives, which are all of one architecture, and
// for an encoder puts them around texts. `documents`: the texts of a language model are many (are_documents),
// so one of characters has a token that ends them, and puts it before texts, where another document ends.
text::Tokenizer train_tokenizer(const TokenizerConfig& config, std::span<const std::string_view> texts,
                                const std::vector<Objective>& objectives, bool documents = false);
// True where files hold documents that begin and end: in rows, or between separators.
bool are_documents(const DataConfig& data);
// What a tokenizer is trained on: the training part of a run's files, documents or both sides of pairs.
struct TrainingTexts {
  std::vector<std::string_view> texts;
  std::shared_ptr<const void> owner;
};
TrainingTexts training_texts(const TrainConfig& config);
// The tokenizer of a run: that of `given`, one that is named, or a trained one.
text::Tokenizer tokenizer_for(const TrainConfig& config, const Origin* given,
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
  std::vector<std::string_view> source, target;
  std::vector<int64_t> lines = {};         // where each begins in its file, from 1
  std::vector<std::string> files = {};     // all that were read
  std::vector<size_t> first_of_file = {};  // the number that the first pair of each has
  size_t first = 0;                        // and the first of these pairs
  int64_t skipped = 0;                     // pairs with an empty side
  Skipped filtered = {};                   // and those that `data` leaves out
  Notes notes = {};
  std::shared_ptr<const void> owner;  // of the texts, which lie in a mapped file

  // FILE:LINE of a pair.
  std::string place(size_t pair) const;
};

// The rows of files, by the columns that `data` names, or the lines of files beside those of `targets`. Pairs
// with an empty side, or one of white space, are left out.
PairTexts read_pairs(const std::vector<std::string>& files, const std::vector<std::string>& targets,
                     const DataConfig& data);
// Their tokens lie in mapped files: with `cache` in the folder of the cache, else in that for temporary
// files.
PairStream tokenize_pairs(const PairTexts& texts, const text::Tokenizer& tokenizer, bool cache = true);

// Pairs of a sequence-to-sequence run. Both sides have one vocabulary, unless the configuration wants two.
struct PairCorpus {
  text::Tokenizer tokenizer;
  PairStream train, valid;
  SequenceEnds ends;
  std::string hash;       // of the training tokens
  PairTexts valid_texts;  // what `valid` was before there were tokens
  int64_t skipped = 0;    // pairs of both with an empty side
  Skipped filtered = {};  // training pairs that `data` leaves out
  Notes notes = {};       // what else is to be told of the files
};

// Reads the files of a configuration; trains the tokenizer on both sides, or one on each, unless it is named
// or given.
PairCorpus load_pairs(const TrainConfig& config, const Origin* given = nullptr);

// What a document is encoded as, one piece after the other, so that a large one takes no more memory than a
// small one: pieces of at most `bytes`, each beginning with a line's end that stands alone between letters or
// digits, where there is one in the window's second half. There tokenizers that divide texts at spaces begin
// anew, and the tokens are those of the whole; one that puts something before texts puts it there, too.
std::vector<std::string_view> pieces_to_encode(std::string_view document, size_t bytes = size_t{1} << 20);

// One file's documents as a stream, in bounded memory; `data`: the separator, or the column of rows. Errors
// name the file.
TokenStream tokenize_file(const std::string& path, const DataConfig& data, const text::Tokenizer& tokenizer,
                          Notes* notes = nullptr);

// True where a tokenizer's tokens are the 256 bytes, so that data of any kind are a text to it.
bool reads_bytes(const text::Tokenizer& tokenizer);

}  // namespace qkv
