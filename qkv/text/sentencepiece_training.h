// Training with the SentencePiece library; only sentencepiece_training.cc includes it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::text {

// Settings of the training.
struct SentencePieceTraining {
  bool bpe = false;  // train BPE instead of a unigram model
  size_t vocab_size = 8192;
  // These take the first ids, in this order. "<unk>", "<s>", "</s>" and "<pad>" get their roles; "<unk>"
  // must be present.
  std::vector<std::string> special_tokens;
  // Called now and then with the bytes of text that the library has read.
  std::function<void(size_t done, size_t total)> progress = {};
};

// Returns the bytes of a .model file trained on the lines of some texts (UTF-8). Texts are not normalized,
// every space is kept, and characters outside the vocabulary become bytes. The vocabulary is smaller than
// requested if the texts do not yield enough pieces. Throws Error with the library's reason if training
// fails. Deterministic.
std::string train_sentencepiece_file(std::span<const std::string_view> texts,
                                     const SentencePieceTraining& training);

}  // namespace qkv::text
