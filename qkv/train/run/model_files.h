// The files beside a model's weights: its tokenizer, special tokens, chat template.
#pragma once

#include <string>

#include "qkv/io/model_dir.h"
#include "qkv/text/tokenizer.h"

namespace qkv {

class RunFolder;
struct RunSetup;

// The contents of a model directory besides the weights and their spec.
struct ModelFiles {
  text::Tokenizer tokenizer;
  SpecialIds ids;
  std::string chat_template = {};  // empty: that of auxiliary_files_of
  // A model directory whose auxiliary files are copied (io/auxiliary_files.h); empty: none.
  std::string auxiliary_files_of = {};
};

// Ids of the tokens that begin and end what a model of this kind reads and writes, by their names.
SpecialIds special_ids_of(const text::Tokenizer& tokenizer, const ModelSpec& spec);

// The files beside the models that a run saves: those of the model that it began with, but for what the run
// itself determines.
ModelFiles model_files_of(const RunSetup& run, const RunFolder& folder);

}  // namespace qkv
