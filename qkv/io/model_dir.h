// Models in Hugging Face's directories: config.json and model.safetensors, or an index and its files.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qkv/io/family/family.h"
#include "qkv/models/transformer.h"

namespace qkv {

// The model directory for the path of a model or a run: DIR itself, DIR/best or DIR/last; or a GGUF file,
// which is used like a directory from then on: PATH itself, or DIR/model.gguf.
std::string resolve_model_dir(const std::string& dir);

// Reads DIR/config.json and DIR's weights (io/weights.h). Matrices are stored in `compute` (f32 or bf16);
// the mapped file is used directly if type and layout match. Throws Error naming file and field or tensor.
std::unique_ptr<Transformer> load_model(const std::string& dir, DType compute);

// Bytes of the parameters that load_model() leaves in the types of the directory's files (quantised ones,
// and those in 16 bits if `compute` is f32), by their names. The others are stored in `compute`.
std::map<std::string, int64_t> bytes_left_packed(const std::string& dir, DType compute);

// The encoder or the decoder of the encoder-decoder in DIR (models/part.h). Throws Error if there is none.
std::unique_ptr<Transformer> load_part(const std::string& dir, Architecture stack, DType compute);

// The spec of DIR/config.json.
ModelSpec load_spec(const std::string& dir);
// Parses the text of a config.json; errors call it `where`.
ModelSpec parse_spec(std::string_view document, const std::string& where);

// Token ids of config.json or generation_config.json; -1 if absent.
struct SpecialIds {
  int64_t bos = -1, pad = -1;
  std::vector<int64_t> eos = {};  // any of them ends a text
  int64_t decoder_start = -1;     // first input token of an encoder-decoder's decoder; -1: bos
  int64_t forced_bos = -1;        // forced first output token (a language); -1: any
  // The tokens around each source (source_begin_token_ids, source_end_token_ids of config.json). Absent:
  // those that the tokenizer adds, or an end-of-sequence token if it adds none, as in older files.
  std::optional<std::vector<int64_t>> source_begin = {}, source_end = {};
  // Sources have only the special tokens that the tokenizer adds (sources_as_tokenized of config.json).
  bool sources_as_tokenized = false;
};
SpecialIds load_special_ids(const std::string& dir);
// Those that a stack of an encoder-decoder has by itself (ModelSpec::part()). An encoder has none around its
// texts but those that its tokenizer adds.
SpecialIds ids_of_part(const SpecialIds& ids, Architecture stack);

// Writes config.json, generation_config.json and the weights into an existing directory. Weights are f32
// (the masters if there are any). Tensors that were read as bf16 or f16 keep that type if it represents
// them exactly.
void save_model(const std::string& dir, const Transformer& model, const SpecialIds& ids = {});

// The tensors that `pick` selects for the parameters, with the names and layout of the family's files.
std::vector<std::pair<std::string, Tensor>> named_tensors(const Transformer& model,
                                                          Tensor (*pick)(const Parameter&));

}  // namespace qkv
