// Models as GGUF files.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "qkv/io/gguf/metadata.h"
#include "qkv/models/transformer.h"
#include "qkv/quant/mixture.h"
#include "qkv/tensor/column_importance.h"

namespace qkv {

struct GgufFileOptions {
  std::optional<FileType> type = {};  // absent: each tensor keeps its own
  bool requantize = false;            // tensors that are quantised already may be quantised again
  // For the columns of each matrix, by GGUF's names: the mean of the squares of the activations that meet
  // them. Empty: all columns count alike.
  std::map<std::string, std::vector<float>> importance = {};
  // Called before each tensor with its name, its number from 0, and how many there are.
  std::function<void(const std::string& name, size_t index, size_t count)> progress = {};
};

// `importance` of GgufFileOptions from that of the matrices of each of the model's parameters, in order
// (infer/importance.h). `from`: the model's directory or file.
std::map<std::string, std::vector<float>> importance_by_name(
    const std::string& from, const std::vector<std::vector<ColumnImportance>>& importance);

// Writes the GGUF file TO in one step: beside it, then renamed.
void write_gguf_atomically(const std::string& to, const GgufParts& parts);

// Writes the model in FROM, a Hugging Face directory or a GGUF file, to the GGUF file TO in one step. With a
// type, the tensors have the types and the bytes that llama_model_quantize() of llama.cpp gives them. Throws
// Error naming what GGUF cannot express.
void save_gguf(const std::string& from, const std::string& to, const GgufFileOptions& options);

}  // namespace qkv
