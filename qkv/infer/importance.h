// How much each column of a weight counts for a model's output: what quantisation by calibration needs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "qkv/models/transformer.h"
#include "qkv/tensor/column_importance.h"

namespace qkv {

struct Calibration {
  // For each of the model's parameters, in order: its matrices that met activations, by their first rows.
  // Empty for parameters that no product reads.
  std::vector<std::vector<ColumnImportance>> importance;
  double loss = 0;  // mean of -log P of the tokens but the first of each window
};

// Runs a decoder on windows of tokens. `progress`: called before each with its number. Throws Error if a
// window is longer than the model's context plus one token.
Calibration calibrate(const Transformer& model, const std::vector<std::vector<int32_t>>& windows,
                      const std::function<void(size_t)>& progress = nullptr);

}  // namespace qkv
