// Models of other programs, which `qkv convert` reads.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "qkv/io/model_dir.h"

namespace qkv {

struct ForeignModel {
  std::unique_ptr<Transformer> model;
  SpecialIds ids;
  // Files of its tokenizers: their paths in a model directory, and their contents.
  std::vector<std::pair<std::string, std::string>> tokenizer_files;
};

// Writes it as a new model directory. Throws Error if that exists, or if its tokenizer cannot be read.
void save_foreign(const ForeignModel& model, const std::string& dir);

}  // namespace qkv
