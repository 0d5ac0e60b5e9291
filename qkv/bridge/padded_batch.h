// Converts padded tensors of the Hugging Face ecosystem to flat batches and back.
#pragma once

#include <string>
#include <vector>

#include "qkv/io/container/safetensors.h"
#include "qkv/models/transformer.h"

namespace qkv {

// The real tokens of a padded batch as a flat batch. Positions count real tokens.
struct PaddedBatch {
  int64_t rows = 0, columns = 0;
  std::vector<int32_t> ids;     // ids of the real tokens
  std::vector<int64_t> places;  // row * columns + column of each real token
  std::vector<int32_t> lengths;

  std::vector<std::vector<int32_t>> sequences() const;
  // All places of that many rows and columns, with the id 0.
  static PaddedBatch whole(int64_t rows, int64_t columns);
  // Spreads [N, D] to [rows, columns, D]; padding is zero.
  Tensor spread(const Tensor& x) const;
  // Selects the real tokens' values from [rows, columns].
  std::vector<int64_t> gather(const std::vector<int64_t>& values) const;
  Layout layout() const {
    Layout layout = Layout::of(lengths);
    layout.padded_length = columns;  // blocks of a pattern are cut from padded sequences
    return layout;
  }
};

// Tensor `name` of a file as integers. Throws Error naming it if it is missing or has another type.
std::vector<int64_t> integers(const TensorFile& in, const std::string& name, const std::string& path);

// Reads tensor `name` [B, T] with its mask (1 = real; "": none). Throws Error naming file and tensor for
// ids outside the vocabulary, or a row longer than `longest` tokens (0: no limit).
PaddedBatch read_padded(const TensorFile& in, const std::string& path, const std::string& name,
                        const std::string& mask, int64_t vocab, int64_t longest);

// Reads tensor `name` [B, T] with a mask for each pair of tokens, `mask` [B, T, T]: 1 if the row's token sees
// the column's. A token that sees none and that none sees is padding. `visibility` gets the real tokens'
// pairs.
PaddedBatch read_with_pairs(const TensorFile& in, const std::string& path, const std::string& name,
                            const std::string& mask, int64_t vocab, int64_t longest, Visibility& visibility);

}  // namespace qkv
