// Random inputs of a model, as `qkv forward` reads them and as the library does.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "qkv/models/transformer.h"
#include "tests/fuzz/shape_cases.h"

namespace qkv::testing {

using Tokens = std::vector<int32_t>;
using Named = std::vector<std::pair<std::string, Tensor>>;

// A padded batch: rows of real tokens with padding before, after or between them.
struct Padded {
  int64_t rows = 0, columns = 0;
  std::vector<int64_t> ids = {}, mask = {};
  std::vector<int64_t> places = {};  // row * columns + column of each real token
  std::vector<int32_t> lengths = {};
  Tokens flat = {};  // ids of the real tokens

  Tensor of(const std::vector<int64_t>& values) const { return Tensor::of({rows, columns}, values); }
};

Padded draw_padded(int64_t rows, int64_t columns, int64_t vocab, Draw& d);

// The inputs of `qkv forward`, and the same for the library.
struct Case {
  Named file;
  Padded tokens, source;  // for images the tokens and the patches
  ModelInput input;
  Indices targets;  // undefined if there are none
  bool permuted = false;
};

bool of_images(const ModelSpec& s);
bool of_frames(const ModelSpec& s);
bool has_both(const ModelSpec& s);

// Normally distributed numbers.
Tensor random_tensor(const Shape& shape, Draw& d);

// Adds pixel_values [B, C, H, W], and their patches as rows: channel, row and column of a pixel in each.
void add_images(const ModelSpec& s, int64_t rows, Draw& d, Case& c);
// Adds ids and their mask under these names.
void add_texts(const std::string& ids, const std::string& mask, const Padded& p, Case& c);
// The tensors of the file from which `qkv forward --generate` writes on: a mask of pairs is none of them.
Named inputs_of_generation(const Case& c);

// Draws the length of texts; some are longer than a tile of the attention kernels.
int64_t draw_columns(int64_t longest, Draw& d);

Case draw_case(const ModelSpec& s, Draw& d);

}  // namespace qkv::testing
