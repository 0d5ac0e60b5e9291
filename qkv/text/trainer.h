// Building tokenizers from text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/text/tokenizer.h"

namespace qkv::text {

// Size and contents of a vocabulary.
struct TrainerOptions {
  size_t vocab_size = 8192;                      // all tokens, including special ones and the alphabet
  int64_t min_frequency = 2;                     // rarer pairs are not merged, rarer words not added
  std::vector<std::string> special_tokens = {};  // take the first ids, in this order
  bool lowercase = true;                         // train_word_piece: lowercases text and removes accents
  size_t alphabet_limit = 1000;  // train_word_piece: number of characters kept, the most frequent ones
  bool surrounded = false;       // train_sentencepiece: put <s> and </s> around texts
  // Called now and then with the progress of the training.
  std::function<void(std::string_view what, size_t done, size_t total)> progress = {};
};

// Byte-level BPE with GPT-2's pattern. The ids after the special tokens are the 256 bytes, in the order of
// their characters in the byte alphabet. Each step then merges the pair with the highest count; among equals
// the one with the smallest left id, then right id. Stops early when no pair occurs min_frequency times.
Tokenizer train_byte_level_bpe(std::span<const std::string_view> texts, const TrainerOptions& options);

// Every character of the texts in the order of code points. A special token "<unk>" (or "[UNK]") stands for
// all others; without one, encoding them throws Error. vocab_size and min_frequency are ignored.
Tokenizer train_characters(std::span<const std::string_view> texts, const TrainerOptions& options);

// The 256 bytes, without merges: needs no texts.
Tokenizer train_bytes(const TrainerOptions& options);

// Words and runs of punctuation, most frequent first, ties by their bytes. "<unk>" is the first special
// token unless the options already name an unknown token. Decoding joins words with spaces.
Tokenizer train_words(std::span<const std::string_view> texts, const TrainerOptions& options);

// WordPiece after BERT's normalizer and pre-tokenizer. Merges are learned over characters as in Hugging
// Face's WordPieceTrainer; those that do not begin a word are marked "##". The first special tokens are
// [PAD], [UNK], [CLS], [SEP] and [MASK], except for those that the options name themselves. Then come the
// characters and their ## forms, by code point. Characters beyond alphabet_limit are ignored. Encoding puts
// [CLS] and [SEP] around texts.
Tokenizer train_word_piece(std::span<const std::string_view> texts, const TrainerOptions& options);

// A unigram language model (Kudo 2018) or byte-pair merges over whole sentences, trained by the
// SentencePiece library: see sentencepiece_training.h. "<unk>", "<s>" and "</s>" follow the special tokens
// of the options, unless these name them. Saved as tokenizer.model and tokenizer_config.json, in Llama's
// form. min_frequency is ignored.
enum class SentencePieceKind { kUnigram, kBpe };
Tokenizer train_sentencepiece(std::span<const std::string_view> texts, const TrainerOptions& options,
                              SentencePieceKind kind);

}  // namespace qkv::text
