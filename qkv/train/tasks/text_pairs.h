// Pairs of texts that should get similar vectors, for training and evaluation.
#pragma once

#include <string>
#include <vector>

#include "qkv/infer/encode.h"
#include "qkv/train/config/config.h"
#include "qkv/train/tasks/evaluate.h"

namespace qkv {

// The pairs of texts of some files: data.text_column and data.second_column. Without the latter a text is
// its own pair, and the two passes differ by dropout (Gao et al. 2021, SimCSE). Drops pairs with an empty
// side; `empty` counts them.
std::vector<TextPair> read_text_pairs(const std::vector<std::string>& files, const DataConfig& data,
                                      Notes* notes = nullptr, int64_t* empty = nullptr);

// Both sides of some pairs, encoded.
struct EncodedPairs {
  std::vector<EncodedText> first, second;

  EncodedPairs(const std::vector<TextPair>& pairs, const text::Tokenizer& tokenizer, const ModelSpec& spec);
  int64_t size() const { return std::ssize(first); }
  std::vector<int64_t> lengths() const;  // tokens of both sides together
  int64_t cut() const;                   // pairs with a side that is longer than the model can read
};

// These pairs as one batch: all first texts, then all second ones.
Batch text_pair_batch(const EncodedPairs& pairs, const std::vector<int64_t>& which);

// Number of pairs among which a text must find its other text.
inline constexpr int64_t kPairsToChooseFrom = 64;

// The contrastive loss of each first text over a group of kPairsToChooseFrom second ones, and "accuracy":
// how often its own is the nearest. The last group may be smaller. Groups have a fixed size because it
// decides how hard the task is.
Evaluation evaluate_pairs(const Transformer& model, const EncodedPairs& pairs,
                          Communicator& ranks = single_process());

// Rank of each first text's own second one among all, by the cosine of their vectors.
struct Retrieval {
  double first = 0;            // share with rank 1
  double among_ten = 0;        // share with rank 10 or better
  double reciprocal_rank = 0;  // mean of 1 / rank
};
Retrieval retrieve(const Transformer& model, const EncodedPairs& pairs, int64_t tokens);

// Baseline accuracy in such groups: how often a text's own pair is nearest by the cosine of word counts.
double found_by_words(const std::vector<TextPair>& pairs);

}  // namespace qkv
