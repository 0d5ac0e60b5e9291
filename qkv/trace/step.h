// The paper's names for traced values.
#pragma once

#include <string>
#include <string_view>

#include "qkv/models/spec.h"

namespace qkv {

// How Phuong & Hutter write a value.
struct Step {
  std::string words = {};    // "queries"
  std::string formula = {};  // "Q = W_q X~ + b_q 1^T"; empty: the paper has no such value
  std::string where = {};    // "Algorithm 10, line 6"; empty: it has no such line
  int64_t layer = -1;        // from 0; -1: of no block
  std::string stack = {};    // "encoder", "decoder"; empty: behind both
};

// The step of a value by its name (docs/notation.md). A name that is not known stands for itself.
Step step_of(const ModelSpec& spec, std::string_view name);

// The algorithm that a model is a variation of: "Algorithm 10, DTransformer".
std::string algorithm_of(const ModelSpec& spec);

}  // namespace qkv
