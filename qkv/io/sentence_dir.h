// sentence-transformers' directories: modules.json names what makes a vector of an encoder's rows.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "qkv/models/spec.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// f(W x + b), a "Dense" module.
struct SentenceLayer {
  Tensor weight, bias;  // f32 [out, in], [out] or undefined
  Activation activation = Activation::identity;
};

// The modules behind the encoder, and settings beside them.
struct SentenceModules {
  std::string transformer;  // the encoder's directory: the same one, or a folder of it
  Pooling pooling = Pooling::mean;
  std::vector<SentenceLayer> layers;  // in turn, on the pooled vector
  bool normalized = false;            // vectors have length 1
  int64_t longest = 0;  // tokens of a text, of which the rest is cut off; 0: the encoder's context
  std::map<std::string, std::string> prompts;  // texts that are put before others, by their names
  std::string default_prompt;                  // the name of the one for texts of no other; empty: none
};

// Reads DIR/modules.json and the files of its modules; nothing if DIR has none. Throws Error naming the file
// and the field for a module or an option that is not supported.
std::optional<SentenceModules> read_sentence_modules(const std::string& dir);

// pooled [S, D] -> [S, D'], f32: the layers, then the norm.
Tensor sentence_vectors(const SentenceModules& modules, const Tensor& pooled);

// The text before others under one of these names, or under the default; empty: none.
std::string prompt_of(const SentenceModules& modules, const std::vector<std::string>& names);

}  // namespace qkv
