// Evaluation of models on texts and examples.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/base/communicator.h"
#include "qkv/data/pairs.h"
#include "qkv/metrics/evaluation.h"
#include "qkv/models/transformer.h"
#include "qkv/text/tokenizer.h"
#include "qkv/train/corpora/examples.h"

namespace qkv {

struct EncodedConversations;

// Each of these can divide the batches among `ranks`, which call it together: the result has the same bits
// for any number of them. (Models with a memory read on from batch to batch: each rank reads them all.)

// Predicts the stream in windows that do not overlap, of `length` tokens (0: the model's context), `batch` at
// a time; at most `windows` of them, spread evenly over the text (0: all).
Evaluation evaluate(const Transformer& model, const TokenStream& stream, int64_t batch, int64_t windows = 0,
                    int64_t length = 0, Communicator& ranks = single_process());

// Predicts every pair's target, about `tokens` tokens at a time. Characters and bytes are those of the
// targets, or 0 if one is longer than the model can write.
Evaluation evaluate(const Transformer& model, const PairStream& pairs, const SequenceEnds& ends,
                    int64_t tokens, Communicator& ranks = single_process());

// Predicts the assistant's messages in every conversation, about `tokens` tokens at a time.
Evaluation evaluate(const Transformer& model, const EncodedConversations& conversations, int64_t tokens,
                    Communicator& ranks = single_process());

// Limit of different labels that a model has not learnt: more mean that the label column is wrong.
inline constexpr size_t kMostUnseenLabels = 1000;

// Predicts the classes, labels, numbers, choices, tags or answers of all examples, about `tokens` tokens at a
// time. The loss covers the parts that the model can read and the labels that it has. Tags lost to truncation
// count as wrong. So do such answers, unless their words occur elsewhere, too: answers are compared as texts
// (scores.h). A label that the model has not learnt is a class of its own, which is never found. An example
// without text is always wrong; with a number, it is left out. The result has the `mistakes` worst mistakes,
// worst first; equally bad ones keep their order. Throws Error if there are more than kMostUnseenLabels
// unknown labels.
Evaluation evaluate(const Transformer& model, const text::Tokenizer& tokenizer,
                    const std::vector<Example>& examples, int64_t tokens, int64_t mistakes = 0,
                    Communicator& ranks = single_process());

// Numbers for Communicator::share(): the sum of a batch's losses and their count, the next token's first and
// then those of modules (models/mtp.h). add_losses() adds those of all batches to an evaluation.
std::vector<double> losses_of(const Transformer& model, const Batch& b);
void add_losses(const std::vector<std::vector<double>>& batches, Evaluation& e);

}  // namespace qkv
