// From texts to texts, by an encoder-decoder or by a decoder that was trained on such pairs.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qkv/data/pairs.h"
#include "qkv/infer/beam.h"
#include "qkv/text/tokenizer.h"

namespace qkv {

// What writes a target for a source, one model or several, and their tokens for the ends.
struct SequenceModel {
  Ensemble model;
  const text::Tokenizer& tokenizer;
  SequenceEnds ends;
};

// What generate() and beam_search() take, so that targets of these sources are written: as pair_batch() has
// them. `begin`: what targets begin with, for each source; empty: nothing is given.
struct Prompts {
  std::vector<std::vector<int32_t>> prompts, sources;
  std::vector<int32_t> prefixes;  // of the prompts: what is not of the target
};
Prompts prompts_for(const ModelSpec& spec, std::vector<std::vector<int32_t>> sources,
                    const SequenceEnds& ends, const std::vector<std::vector<int32_t>>& begin = {});
// Tokens of a source at most, without what stands around it.
size_t longest_source(const ModelSpec& spec, const SequenceEnds& ends);
// The tokens that a tokenizer puts before a text, and those behind it.
std::pair<std::vector<int32_t>, std::vector<int32_t>> tokens_around(const text::Tokenizer& tokenizer);
// Puts around sources what their tokenizer puts around texts, where that ends them with `eos`; else `eos`
// alone.
void surround_sources(SequenceEnds& ends, const text::Tokenizer& sources, int32_t eos);

// One output of a source.
struct Translation {
  std::string text;
  double log_probability = 0, score = 0;
  std::vector<std::string> tokens = {};  // as the vocabulary has them
  // The attention, where options ask for it: of each token to each of the source's own tokens, 0 to those
  // that were cut off.
  std::vector<std::vector<float>> attention = {};
};

// The outputs of some sources.
struct Translations {
  std::vector<std::vector<Translation>> best;  // of each source, best first; of an empty one an empty text
  std::vector<std::vector<std::string>> source_tokens;  // for each source
  int64_t cut = 0;  // sources that were longer than the model can read, or than was asked for
};

// What draws outputs instead of searching for them: so many of each source, of which the first of all has the
// seed `seed`.
struct Drawing {
  SamplerOptions sampler = {};
  uint64_t seed = 0;
  int64_t samples = 1;
};

// The rest of what translate() is told.
struct TranslateOptions {
  int64_t batch_tokens = 2048;          // source tokens at a time
  int64_t longest_source = 0;           // in tokens, beyond which sources are cut; 0: as the model can read
  std::vector<std::string> begin = {};  // the beginning of each output; empty, or as many as sources
  bool replace_unknowns = false;        // by the words of the source that they looked at most
  std::optional<Drawing> drawing = {};
};

// Encodes, searches (or draws) and decodes. Sources of like length are searched together; the outputs are in
// the sources' order. Where search.prefix_bias is above 0 outputs need not begin with what is given.
Translations translate(const SequenceModel& m, const std::vector<std::string>& sources, BeamOptions search,
                       const TranslateOptions& options = {});

}  // namespace qkv
