// The kind of a model's output, and of its targets.
#pragma once

#include <cstdint>

namespace qkv {

// A model's output.
enum class Output : uint8_t {
  tokens,            // a distribution over the vocabulary for each token (the unembedding)
  sequence_classes,  // a distribution over classes for each sequence
  token_classes,     // a distribution over classes for each token
  span,              // two distributions over each sequence's tokens: for an answer's first and last one
  embedding,         // a vector for each sequence
};

// The meaning of a sequence's scores of classes.
enum class Problem : uint8_t {
  single_label,     // a distribution over the labels, of which one applies (softmax)
  multi_label,      // for each label whether it applies (a sigmoid each)
  regression,       // numbers themselves
  multiple_choice,  // one score each: a distribution over the sequences that are a question's choices
};

}  // namespace qkv
