// How well a model predicts a text.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/data/pairs.h"
#include "qkv/metrics/evaluation.h"
#include "qkv/models/transformer.h"
#include "qkv/text/tokenizer.h"
#include "qkv/train/corpora/examples.h"

namespace qkv {

struct EncodedConversations;

// Predicts the stream in windows that do not overlap, of `length` tokens (0: the model's context), `batch` at
// a time; at most `windows` of them, spread evenly over the text (0: all).
Evaluation evaluate(const Transformer& model, const TokenStream& stream, int64_t batch, int64_t windows = 0,
                    int64_t length = 0);

// Predicts every pair's target, about `tokens` tokens at a time. Characters and bytes are the targets', or 0
// where one is longer than the model can write.
Evaluation evaluate(const Transformer& model, const PairStream& pairs, const SequenceEnds& ends,
                    int64_t tokens);

// Predicts what the assistant says in every conversation, about `tokens` tokens at a time.
Evaluation evaluate(const Transformer& model, const EncodedConversations& conversations, int64_t tokens);

// Something that a model got wrong.
struct Mistake {
  size_t example = 0;     // its number among the examples
  int64_t word = -1;      // of tags: the word
  std::string predicted;  // empty where the word was cut away
  double score = 0;       // the probability of `predicted`; of an answer its F1 with the right one
};

// Different labels of examples that a model was not taught: more are a mistake in the choice of the column.
inline constexpr size_t kMostUnseenLabels = 1000;

// Tells the classes, tags or answers of every example, about `tokens` tokens at a time. The loss is that of
// what the model can read and can say; a tag that was cut away counts as wrong, and so does an answer unless
// its words stand elsewhere, too: answers are compared as texts (scores.h). A label that the model was not
// taught is a class of its own, which is never found; an example without text is never right. `mistakes`,
// where given, gets what was wrong, in the order of the examples. Throws Error where there are more than
// kMostUnseenLabels such labels.
Evaluation evaluate(const Transformer& model, const text::Tokenizer& tokenizer,
                    const std::vector<Example>& examples, int64_t tokens,
                    std::vector<Mistake>* mistakes = nullptr);

}  // namespace qkv
