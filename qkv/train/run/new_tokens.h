// Rows of a pretrained model for tokens that are added to its vocabulary.
#pragma once

#include <cstdint>

#include "qkv/nn/parameter.h"

namespace qkv {

// True for the embeddings, the unembeddings and their biases: a row for each token.
bool is_of_vocabulary(const Parameter& p, const Parameter& before);

// Tokens [known, all) are new. A row may be there for them already, where a vocabulary is padded.
struct NewTokens {
  int64_t known = 0, all = 0;
  uint64_t seed = 0;

  // The rows `before` in a tensor of this shape, which may have more of them. Those of the new tokens are the
  // mean of the known ones, with noise of a tenth of their deviation: a function of the seed (Hewitt 2021,
  // "Initializing new word embeddings for pretrained language models").
  Tensor rows(const Tensor& before, const Shape& shape) const;
};

}  // namespace qkv
