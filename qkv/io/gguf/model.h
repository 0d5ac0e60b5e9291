// A GGUF file's model as Hugging Face has it, and back, so that the families of io/family read and write it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/io/gguf/metadata.h"

namespace qkv {

struct GgufModel {
  Json config;  // a config.json
  // By Hugging Face's names, in its layout; but vectors and small matrices are f32.
  std::map<std::string, Weight> tensors;
  // The tensors of blocks that are laid out as the engine's parameter, [out, in], where Hugging Face has [in,
  // out]: rows of blocks cannot be transposed. Their rows are in the engine's order, too.
  std::set<std::string> as_in_engine;
};

// Reads the model. Experts and parts of fused projections are views of the file's tensors; what has another
// order is copied. Throws Error naming the file, and the key or the tensor: for an architecture or a key
// below its prefix that qkv does not know, for what is missing, and for shapes that differ from the metadata.
GgufModel model_of_gguf(const Gguf& file);
// The config.json alone.
Json config_of_gguf(const Gguf& file);

// Writes a model of a config.json and the tensors that belong to it, in any of Hugging Face's types; those of
// one axis and small matrices become f32. Has neither a tokenizer's metadata nor general.name,
// general.file_type and general.quantization_version. The metadata is read again: Error is thrown, naming the
// field, for what GGUF files of the architecture cannot express, and for a missing tensor. Fields that only
// training reads are dropped.
GgufParts gguf_of_model(const Json& config, const std::vector<std::pair<std::string, Weight>>& tensors);

}  // namespace qkv
