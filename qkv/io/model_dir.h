// A model as a Hugging Face directory: config.json and model.safetensors, or an index and its files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qkv/io/family/family.h"
#include "qkv/models/transformer.h"

namespace qkv {

// DIR itself, or DIR/best, or DIR/last: the model directory that a run's or a model's path means.
std::string resolve_model_dir(const std::string& dir);

// Reads DIR/config.json and DIR's weights (io/weights.h); matrices are held in `compute` (f32 or bf16), and
// used as they lie in the mapped file where type and layout agree. Throws Error naming file and field or
// tensor.
std::unique_ptr<Transformer> load_model(const std::string& dir, DType compute);

// The spec of DIR/config.json.
ModelSpec load_spec(const std::string& dir);
// The spec of such a file's text; `where` is what errors call it.
ModelSpec parse_spec(std::string_view document, const std::string& where);

// Token ids that config.json or generation_config.json name; -1 where they name none.
struct SpecialIds {
  int64_t bos = -1, pad = -1;
  std::vector<int64_t> eos = {};  // any of them ends a text
  int64_t decoder_start = -1;     // what an encoder-decoder writes after; -1: bos
  int64_t forced_bos = -1;        // what it writes first (a language); -1: anything
  // The tokens around each source (source_begin_token_ids, source_end_token_ids of config.json). Absent:
  // those that the tokenizer puts there, and an end-of-sequence token where it puts none, as older files mean
  // it.
  std::optional<std::vector<int64_t>> source_begin = {}, source_end = {};
  // Nothing stands around a source but what the tokenizer puts there (sources_as_tokenized of config.json).
  bool sources_as_tokenized = false;
};
SpecialIds load_special_ids(const std::string& dir);

// Writes both files into an existing directory. Weights are f32 (the masters where there are any); tensors
// that were read as bf16 or f16 and are still what these can hold are written so.
void save_model(const std::string& dir, const Transformer& model, const SpecialIds& ids = {});

// The family's name of each parameter with the tensor that `pick` chooses for it, laid out as in the file.
std::vector<std::pair<std::string, Tensor>> named_tensors(const Transformer& model,
                                                          Tensor (*pick)(const Parameter&));

}  // namespace qkv
