// A file's tensors as a model's parameters, and back.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "qkv/io/container/safetensors.h"
#include "qkv/io/family/family.h"
#include "qkv/models/transformer.h"

namespace qkv {

// Where tensors come from: for errors the file and the config.json that says their shapes; `prefix`: what
// files of a bare model leave out of names.
struct TensorSource {
  const std::string& path;
  const Safetensors& file;
  const std::string& config;
  std::string prefix;
};

// Binds all of a model's parameters, matrices in the type `compute`. Returns the tensors that were used.
// Throws Error naming the tensor that is missing or of another shape or type.
std::set<std::string> bind_weights(Transformer& model, const std::vector<WeightName>& names,
                                   const TensorSource& from, DType compute);

// A file's tensor as f32 or bf16. Throws Error that begins with `at` where it is not of a floating type.
Tensor floating(const Tensor& stored, DType wanted, const std::string& at);

// An f32 tensor in the type that a file had it in, where that is bf16 or f16 and holds its values; else as it
// is.
Tensor as_stored(const Tensor& x, DType type);

// The tensor that a file has of a parameter, which is `value` f32.
Tensor as_in_file(const WeightName& name, const Parameter& parameter, Tensor value);

// The tensors that `pick` chooses for a model's parameters, f32, under the file's names and laid out as
// there.
std::vector<std::pair<std::string, Tensor>> tensors_in_file(const Transformer& model,
                                                            const std::vector<WeightName>& names,
                                                            Tensor (*pick)(const Parameter&));

// A model's weights (the masters where there are any) as a file has them: f32, or the type that they were
// read in where that still holds them.
std::vector<std::pair<std::string, Tensor>> weights_to_write(const Transformer& model,
                                                             const std::vector<WeightName>& names);

}  // namespace qkv
