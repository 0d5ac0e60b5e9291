// Padded tensors of the Hugging Face ecosystem, as flat batches and back.
#pragma once

#include <string>
#include <vector>

#include "qkv/io/container/safetensors.h"
#include "qkv/models/transformer.h"

namespace qkv {

// The real tokens of a padded batch as a flat one. Positions count real tokens.
struct PaddedBatch {
  int64_t rows = 0, columns = 0;
  std::vector<int32_t> ids;     // of the real tokens
  std::vector<int64_t> places;  // row * columns + column of each
  std::vector<int32_t> lengths;

  std::vector<std::vector<int32_t>> sequences() const;
  // [N, D] back to [rows, columns, D]; padding is zero.
  Tensor spread(const Tensor& x) const;
  // Values [rows, columns] of the real tokens.
  std::vector<int64_t> gather(const std::vector<int64_t>& values) const;
  Layout layout() const {
    Layout layout = Layout::of(lengths);
    layout.padded_length = columns;  // blocks of a pattern are cut from padded sequences
    return layout;
  }
};

// Tensor `name` of a file as integers. Throws Error naming it where it is missing or of another type.
std::vector<int64_t> integers(const Safetensors& in, const std::string& name, const std::string& path);

// Tensor `name` [B, T] with its mask (1 = real; "": none). Throws Error naming file and tensor for what does
// not fit the vocabulary, or a row beyond `longest` tokens (0: none is).
PaddedBatch read_padded(const Safetensors& in, const std::string& path, const std::string& name,
                        const std::string& mask, int64_t vocab, int64_t longest);

}  // namespace qkv
