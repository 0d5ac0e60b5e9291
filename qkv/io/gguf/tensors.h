// The tensors of a GGUF file under Hugging Face's names, and back.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "qkv/io/family/family.h"
#include "qkv/io/gguf/architecture.h"

namespace qkv {

// A model's architecture on both sides.
struct GgufNaming {
  const GgufArchitecture& architecture;
  const Family& family;
  const ModelSpec& spec;
};

// Tensors by Hugging Face's names; `as_in_engine` is that of GgufModel.
std::map<std::string, Weight> read_gguf_tensors(const Gguf& file, const GgufNaming& naming,
                                                std::set<std::string>& as_in_engine);

// Adds the tensors under the file's names, those outside of layers first.
void write_gguf_tensors(const std::vector<std::pair<std::string, Weight>>& tensors, const GgufNaming& naming,
                        GgufParts& parts);

}  // namespace qkv
