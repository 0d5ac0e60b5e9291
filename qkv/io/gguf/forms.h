// Layouts of tensors in GGUF files and in Hugging Face's.
#pragma once

#include <string>
#include <vector>

#include "qkv/io/gguf/architecture.h"
#include "qkv/models/spec.h"

namespace qkv {

// A tensor that is converted, and the model whose heads and experts it has. Errors begin with `at`.
struct GgufConversion {
  GgufForm form;
  const ModelSpec& spec;
  std::string at;
};

// One of Hugging Face's tensors as in a GGUF file, and back, for the forms with one tensor on each side. Rows
// of blocks are copied whole. A transposed matrix of blocks stays [out, in]. Throw Error for shapes that are
// not the model's, and for blocks where single numbers would have to move.
Weight to_gguf_form(const GgufConversion& conversion, const Weight& tensor);
Weight from_gguf_form(const GgufConversion& conversion, const Weight& tensor);

// [E, ...] of E tensors. Throws Error if they differ in type or shape.
Weight stacked(const std::vector<Weight>& tensors, const std::string& at);
// Tensor i of [E, ...], a view.
Weight unstacked(const Weight& tensor, int64_t i);

// The tensor with these even and odd columns: [E, in, out] of [E, out / 2, in], or [E, out] of [E, out / 2].
// Blocks become the rows that the engine has, [E out, in], without copies: each expert's even columns, then
// its odd ones.
Weight joined_columns(const Weight& even, const Weight& odd, const std::string& at);

// [heads (nope + v), latent] of keys [heads, latent, nope] and values [heads, v, latent]. Blocks become f32,
// because the keys are transposed.
Weight joined_latents(const Weight& keys, const Weight& values, const ModelSpec& spec, const std::string& at);

// The numbers as f32.
Tensor as_f32(const Weight& tensor);

}  // namespace qkv
