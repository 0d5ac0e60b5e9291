// Converts a file's tensors to a model's parameters and back.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "qkv/io/container/tensor_file.h"
#include "qkv/io/family/family.h"
#include "qkv/models/transformer.h"

namespace qkv {

// Source of tensors: the file, and for errors its path and the config.json that defines their shapes.
// `prefix`: the part of names that files of a bare model omit.
struct TensorSource {
  const std::string& path;
  const TensorFile& file;
  const std::string& config;
  std::string prefix;
};

// Binds all of a model's parameters, with matrices in the type `compute`. Returns the names of the tensors
// used. Throws Error naming a tensor that is missing or has another shape or type.
std::set<std::string> bind_weights(Transformer& model, const std::vector<WeightName>& names,
                                   const TensorSource& from, DType compute);

// Bytes of the parameters that bind_weights() would leave in the types of the file, by their names. Binds
// nothing; `model` may lack values.
std::map<std::string, int64_t> bytes_left_packed(Transformer& model, const std::vector<WeightName>& names,
                                                 const TensorSource& from, DType compute);

// A file's tensor as f32 or bf16. Throws Error beginning with `at` if it has no floating-point type.
Tensor floating(const Tensor& stored, DType wanted, const std::string& at);

// An f32 tensor in the type that it had in a file, if that is bf16 or f16 and represents its values
// exactly; else unchanged.
Tensor as_stored(const Tensor& x, DType type);

// The tensor of a parameter as in a file; `value` is f32.
Tensor as_in_file(const WeightName& name, const Parameter& parameter, Tensor value);

// The tensors that `pick` selects for a model's parameters, f32, with the names and layout of the file.
std::vector<std::pair<std::string, Tensor>> tensors_in_file(const Transformer& model,
                                                            const std::vector<WeightName>& names,
                                                            Tensor (*pick)(const Parameter&));

// A parameter's values: the f32 masters if there are any, or else as the passes read them; f32 if it is
// packed.
Tensor trained_value(const Parameter& parameter);

// A model's weights (the f32 masters if there are any) as in a file: f32, or the type they were read in if
// it represents them exactly.
std::vector<std::pair<std::string, Tensor>> weights_to_write(const Transformer& model,
                                                             const std::vector<WeightName>& names);

}  // namespace qkv
