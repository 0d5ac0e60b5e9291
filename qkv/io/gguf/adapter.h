// LoRA adapters as GGUF files, in the form of llama.cpp's convert_lora_to_gguf.py and llama-adapter.cpp.
#pragma once

#include <map>
#include <string>

#include "qkv/base/json.h"
#include "qkv/io/gguf/metadata.h"

namespace qkv {

// A product's change scale B A: A [rank, in], B [out, rank], f32.
struct GgufLowRank {
  Tensor a, b;
};

// An adapter. Modules have Hugging Face's names ("model.layers.0.self_attn.q_proj") and order of rows. The
// scale of each is alpha / rank, or 1 if alpha is 0.
struct GgufAdapter {
  double alpha = 0;
  std::map<std::string, GgufLowRank> modules;
};

// True if the file holds an adapter and no model.
bool is_gguf_adapter(const Gguf& file);

// Reads an adapter of the model that has this config.json. Throws Error naming the file, and the key or the
// tensor: for another architecture or kind of adapter, for tensors that are no product of the model, and for
// one of a pair that is missing.
GgufAdapter adapter_of_gguf(const Gguf& file, const Json& config);

// Writes an adapter of the model that has this config.json. Throws Error naming the module if files of its
// architecture have it in another form, such as experts and halves of a matrix.
GgufParts gguf_of_adapter(const GgufAdapter& adapter, const Json& config);

}  // namespace qkv
