// Predictions of an encoder for texts: classes, tags, answers, vectors, masked tokens.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "qkv/base/communicator.h"
#include "qkv/infer/encode.h"
#include "qkv/models/transformer.h"

namespace qkv {

// The scores of each text before the softmax: f32 [1, C], for token classes [tokens, C], for spans [tokens,
// 2]. Texts of similar length are batched, about `tokens` tokens at a time. Ranks divide the batches.
std::vector<Tensor> class_scores(const Transformer& model, const std::vector<EncodedText>& texts,
                                 int64_t tokens = 4096, Communicator& ranks = single_process());

// The scores [1, C] of a question's choices, of those [1, 1] of each.
Tensor scores_of_choices(std::span<const Tensor> each);

// Probabilities of the classes: softmax of a row of scores; a single class gets a sigmoid.
std::vector<double> probabilities_of(const Tensor& scores, int64_t row);

// The meaning of a row of a classifier's scores: probabilities of one label or, for multi_label, of each by
// itself; numbers as they are; probabilities of one of a question's choices.
std::vector<double> class_values(const ModelSpec& spec, const Tensor& scores, int64_t row);
// A label of multi_label applies from this probability on.
inline constexpr double kApplies = 0.5;
// The same as text: the best label, the labels that apply, or the numbers.
std::string said_of(const ModelSpec& spec, const Tensor& scores);

// Combines several models' scores of the same spans, each [tokens, 2]: the logarithm of the mean of their
// probabilities that an answer begins, or ends, at a token. A single model's scores are returned unchanged.
Tensor span_scores(const std::vector<Tensor>& models);

// Tokens [begin, end) of a sequence.
struct TokenSpan {
  int64_t begin = 0, end = 0;
  double score = 0;  // sum of the scores of both ends
};

// The span of at most `longest` tokens with the highest sum of its ends' scores [tokens, 2]. It is chosen
// among the tokens of type 1 before the last one, a separator; if there are none, among all.
TokenSpan best_span(const Tensor& scores, std::span<const int32_t> types, int64_t longest = 30);

// An answer in a text, and its bytes [begin, end) there.
struct Answer {
  std::string text;
  size_t begin = 0, end = 0;
  double score = 0;  // score of its token span
};

// The answer in text.second by the scores [tokens, 2] of `encoded`, without spaces at its beginning. If
// tokens are bytes, it is extended to whole characters.
Answer best_answer(const Tensor& scores, const EncodedText& encoded, const TextPair& text,
                   int64_t longest = 30);

// The pooled vector of each text: f32 [texts, D].
Tensor pooled_texts(const Transformer& model, const std::vector<EncodedText>& texts, int64_t tokens = 4096);
// The same with length 1.
Tensor embed_texts(const Transformer& model, const std::vector<EncodedText>& texts, int64_t tokens = 4096);

// A token with its probability.
struct Candidate {
  int32_t id;
  double probability;
};

// The `best` most probable tokens for every mask of every text, among ids below `vocabulary` (a tokenizer
// may have fewer than its model); 0: among all.
std::vector<std::vector<std::vector<Candidate>>> fill_masks(const Transformer& model,
                                                            const std::vector<EncodedText>& texts,
                                                            int32_t mask, int64_t best, int64_t tokens = 4096,
                                                            int64_t vocabulary = 0);

}  // namespace qkv
