// Architectures of GGUF files: how the metadata and the tensors of each correspond to a Hugging Face
// config.json and its tensors. Each is a table that reading and writing share, so that they cannot differ.
// The rules are those of llama.cpp's converter (conversion/) and loader (src/models/).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "qkv/base/json.h"
#include "qkv/io/gguf/metadata.h"

namespace qkv {

enum class GgufFieldKind : uint8_t { integer, number, flag };

// A key of the metadata and the field of config.json with the same value. Fields with several keys have one
// value.
struct GgufField {
  const char* key;  // without the architecture's prefix
  const char* field;
  GgufFieldKind kind = GgufFieldKind::integer;
  bool required = true;
  const char* otherwise = nullptr;  // the key whose value holds if this one is missing
};

// How a tensor of a GGUF file is made of one of Hugging Face's.
enum class GgufForm : uint8_t {
  same,
  rotary_queries,  // in each head, rows of the two halves in turn
  rotary_keys,
  plus_one,    // each number + 1
  transposed,  // a matrix [out, in] where Hugging Face has [in, out]
  one_row,     // [in] where Hugging Face has [1, in]
  stacked,     // [E, ...] of E tensors; "{}" in their name is the expert, or the head
  groups,  // queries, keys, values; Hugging Face has a group for each key head, with its queries before it
  even_columns,  // the first, third, ... of out in [E, in, out] or [E, out], as [E, out / 2, in] or [E, out /
                 // 2]
  odd_columns,
  stack_transposed,     // [E, out, in] of [E, in, out]
  latent_keys,          // the first rows of each head [nope + v, latent], transposed: [heads, latent, nope]
  latent_values,        // its last rows: [heads, v, latent]
  queries_keys_values,  // a fused projection of three of Hugging Face's, "q_proj|k_proj|v_proj"; only read
};

// A tensor in both files. "{}" is the layer. A name without ".weight" or ".bias" stands for both.
struct GgufTensorName {
  const char *gguf, *file;
  GgufForm form = GgufForm::same;
  bool only_read = false;  // older files have it in this form
  bool wide = false;       // f32, whatever type other matrices have
};

// The fields of rotary positions.
struct GgufRotary {
  const char* base = nullptr;  // null: the architecture has no rotary positions
  const char* part = nullptr;  // the rotated part of a head; null: all of it
  bool own_width = false;      // the rotated width is one of the fields
};

// Layers with a window, among those without.
struct GgufWindows {
  int64_t period = 0;  // the last of so many layers has none; 0: the architecture has no such layers
};

struct GgufArchitecture {
  std::string_view name;
  std::vector<std::string_view> types;  // model_types that are written as this architecture
  std::vector<GgufField> fields;
  std::vector<GgufTensorName> tensors;
  GgufRotary rotary = {};
  GgufWindows windows = {};
  bool causal = true;  // a token sees none behind it
  // Adds what fields do not say: first model_type.
  void (*read)(const GgufKeys& keys, Json& config) = nullptr;
  void (*write)(const Json& config, GgufKeyWriter& keys) = nullptr;
  // Keys without effect on the result.
  std::vector<std::string_view> harmless = {};
  // Hugging Face's tensors, by the beginning of their names, that no file of this architecture has. They are
  // zeros when it is read.
  std::vector<std::string_view> without = {};
};

// The architecture of a name, or the one as which a model_type is written; null if there is none.
const GgufArchitecture* find_gguf_architecture(std::string_view name);
const GgufArchitecture* gguf_architecture_of(std::string_view model_type);
// The names of all.
std::vector<std::string_view> gguf_architectures();

// The tables, each in the file that its name ends with.
const std::vector<GgufArchitecture>& gguf_architectures_llama();
const std::vector<GgufArchitecture>& gguf_architectures_gemma();
const std::vector<GgufArchitecture>& gguf_architectures_phi();
const std::vector<GgufArchitecture>& gguf_architectures_gpt();
const std::vector<GgufArchitecture>& gguf_architectures_experts();
const std::vector<GgufArchitecture>& gguf_architectures_encoder();

}  // namespace qkv
