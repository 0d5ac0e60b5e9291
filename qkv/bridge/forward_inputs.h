// Tensors of a file under the Hugging Face names as a model's inputs.
#pragma once

#include <string>
#include <vector>

#include "qkv/bridge/collector.h"
#include "qkv/io/model_dir.h"

namespace qkv {

// Takes rotations.N [heads, d, rounds, columns], those by which layer N hashes, from the inputs into the
// model. Throws Error if the layer has no such.
void take_rotations(TensorFile& in, Transformer& model, const std::string& path);

// Throws Error for a tensor that the model has no input for, or for one that is missing.
void expect_known_inputs(const TensorFile& in, const ModelSpec& spec, const std::string& path);

// Inputs [B, C, T] of a model of multiple choice, whose rows are questions with C choices each, as [B C, T].
// Sets `choices` to C.
TensorFile with_rows_of_choices(const TensorFile& in, const std::string& path, int64_t& choices);

// The flags of global tokens of each row, from global_attention_mask, without padding.
std::vector<std::vector<int32_t>> global_flags(const TensorFile& in, const std::string& path,
                                               const PaddedBatch& batch);

// Spectrograms [B, channels, frames]: positions of the source, two frames each, and their rows.
PaddedBatch read_frames(const TensorFile& in, const std::string& path, const ModelSpec& spec,
                        Tensor& features);

// Reads tokens, masks, images, spectrograms, encoded sources and targets. Throws Error naming the file and
// the tensor.
Inputs read_inputs(const TensorFile& in, const std::string& path, const ModelSpec& spec,
                   const SpecialIds& ids);

}  // namespace qkv
