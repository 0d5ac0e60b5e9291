// Pairs of texts whose vectors should be near each other, in training and after it.
#pragma once

#include <string>
#include <vector>

#include "qkv/infer/encode.h"
#include "qkv/train/config/config.h"
#include "qkv/train/tasks/evaluate.h"

namespace qkv {

// The pairs of texts of some files: data.text_column and data.second_column. Without the latter a text is its
// own pair: two passes differ by their dropout (Gao et al. 2021, SimCSE). Pairs with an empty side are left
// out; `empty` counts them.
std::vector<TextPair> read_text_pairs(const std::vector<std::string>& files, const DataConfig& data,
                                      Notes* notes = nullptr, int64_t* empty = nullptr);

// Both sides of some pairs, as a model reads them.
struct EncodedPairs {
  std::vector<EncodedText> first, second;

  EncodedPairs(const std::vector<TextPair>& pairs, const text::Tokenizer& tokenizer, const ModelSpec& spec);
  int64_t size() const { return std::ssize(first); }
  std::vector<int64_t> lengths() const;  // tokens of both sides together
  int64_t cut() const;                   // pairs with a side that was longer than the model can read
};

// These pairs as one batch: all first texts, then all second ones.
Batch text_pair_batch(const EncodedPairs& pairs, const std::vector<int64_t>& which);

// How many pairs a text's other one is sought among.
inline constexpr int64_t kPairsToChooseFrom = 64;

// The contrastive loss of each first text among as many second ones (the last ones among fewer), and how
// often its own is the nearest: "accuracy". In groups of that size: how many there are to choose from decides
// how hard it is.
Evaluation evaluate_pairs(const Transformer& model, const EncodedPairs& pairs);

// Where each first text's own second one stands among all, by the cosine of their vectors.
struct Retrieval {
  double first = 0;            // part of them that stand first
  double among_ten = 0;        // or among the first ten
  double reciprocal_rank = 0;  // mean of 1 / rank
};
Retrieval retrieve(const Transformer& model, const EncodedPairs& pairs, int64_t tokens);

// How often a text's other one is the nearest in such groups by the words that both have: the cosine of their
// counts.
double found_by_words(const std::vector<TextPair>& pairs);

}  // namespace qkv
