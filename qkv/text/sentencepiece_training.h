// Training by the SentencePiece library; only sentencepiece_training.cc knows it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::text {

// What is asked of the library.
struct SentencePieceTraining {
  bool bpe = false;  // merges by frequency; else a unigram model
  size_t vocab_size = 8192;
  // Take the first ids, in this order; "<unk>", "<s>", "</s>" and "<pad>" in their roles. "<unk>" is among
  // them.
  std::vector<std::string> special_tokens;
  // Told now and then how much text the library has been given.
  std::function<void(size_t done, size_t total)> progress = {};
};

// The bytes of a .model file learned from the lines of some texts (UTF-8). Texts stay as they are: no
// normalisation, every space kept, characters outside the vocabulary as their bytes. The vocabulary is
// smaller than asked for when the texts do not yield so many pieces. Throws Error with the library's reason
// when it fails. Deterministic.
std::string train_sentencepiece_file(std::span<const std::string_view> texts,
                                     const SentencePieceTraining& training);

}  // namespace qkv::text
