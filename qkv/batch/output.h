// The kind of a model's output, and of the targets that it learns from.
#pragma once

#include <cstdint>

namespace qkv {

// A model's output.
enum class Output : uint8_t {
  tokens,            // of each token a distribution over the vocabulary: the unembedding
  sequence_classes,  // of each sequence one over classes
  token_classes,     // of each token one over classes
  span,              // of each sequence two over its tokens: where an answer begins, and where it ends
  embedding,         // of each sequence a vector
};

}  // namespace qkv
