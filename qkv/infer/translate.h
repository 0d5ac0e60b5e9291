// From texts to texts, by an encoder-decoder.
#pragma once

#include <string>
#include <vector>

#include "qkv/infer/beam.h"
#include "qkv/text/tokenizer.h"

namespace qkv {

// A model that writes a target for a source, and its tokens for the ends.
struct SequenceModel {
  const Transformer& model;
  const text::Tokenizer& tokenizer;
  int32_t bos, eos;
};

// One output of a source.
struct Translation {
  std::string text;
  double log_probability = 0, score = 0;
};

// The outputs of some sources.
struct Translations {
  std::vector<std::vector<Translation>> best;  // of each source, best first; of an empty one an empty text
  int64_t cut = 0;                             // sources that were longer than the model can read
};

// Encodes, searches and decodes. Sources of like length are searched together, about `batch_tokens` of their
// tokens at a time; the outputs are in the sources' order.
Translations translate(const SequenceModel& m, const std::vector<std::string>& sources, BeamOptions options,
                       int64_t batch_tokens = 2048);

}  // namespace qkv
