// The tensors of a GGUF file under Hugging Face's names, and back.
#pragma once

#include <map>
#include <optional>
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
  ModelSpec spec;
};

// That of the model of a config.json, which errors call `where`. Throws Error if it is no model, or of a
// model_type that GGUF files do not have.
GgufNaming gguf_naming_of(const Json& config, const std::string& where);

// The other file's name of a matrix, and its form there.
struct GgufCounterpart {
  std::string name;
  GgufForm form;
  int64_t part = 0;  // which of the matrices in a stack
};
// The names in a GGUF file for one of Hugging Face's; several if its parts are apart.
std::vector<GgufCounterpart> gguf_names_of(const std::string& name, const GgufNaming& naming);
// The first of Hugging Face's names for that in a GGUF file; nothing if the model has none.
std::optional<GgufCounterpart> file_name_of(const std::string& name, const GgufNaming& naming);

// Tensors by Hugging Face's names; `as_in_engine` is that of GgufModel.
std::map<std::string, Weight> read_gguf_tensors(const Gguf& file, const GgufNaming& naming,
                                                std::set<std::string>& as_in_engine);

// Adds the tensors under the file's names, those outside of layers first.
void write_gguf_tensors(const std::vector<std::pair<std::string, Weight>>& tensors, const GgufNaming& naming,
                        GgufParts& parts);

}  // namespace qkv
