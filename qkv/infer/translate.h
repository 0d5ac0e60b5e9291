// Translates texts to texts with an encoder-decoder, or with a decoder that was trained on such pairs.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qkv/data/pairs.h"
#include "qkv/infer/beam.h"
#include "qkv/text/tokenizer.h"

namespace qkv {

// One or several models that write targets for sources, with their tokenizer and special tokens.
struct SequenceModel {
  Ensemble model;
  const text::Tokenizer& tokenizer;
  SequenceEnds ends;
};

// Input of generate() and beam_search() for the targets of these sources, in the format of pair_batch().
// `begin`: the beginning of each source's target; empty: none.
struct Prompts {
  std::vector<std::vector<int32_t>> prompts, sources;
  std::vector<int32_t> prefixes;  // length of each prompt without the target's beginning
};
Prompts prompts_for(const ModelSpec& spec, std::vector<std::vector<int32_t>> sources,
                    const SequenceEnds& ends, const std::vector<std::vector<int32_t>>& begin = {});
// Maximum number of tokens of a source, without the special tokens around it.
size_t longest_source(const ModelSpec& spec, const SequenceEnds& ends);
// The tokens that a tokenizer puts before and after a text.
std::pair<std::vector<int32_t>, std::vector<int32_t>> tokens_around(const text::Tokenizer& tokenizer);
// Sets the tokens around sources to those of their tokenizer, if these end with `eos`; else to `eos` alone.
void surround_sources(SequenceEnds& ends, const text::Tokenizer& sources, int32_t eos);

// One output of a source.
struct Translation {
  std::string text;
  double log_probability = 0, score = 0;
  std::vector<std::string> tokens = {};  // as in the vocabulary
  // The attention, if requested: one row for each token, one column for each of the source's own tokens.
  // Columns of truncated tokens are 0.
  std::vector<std::vector<float>> attention = {};
};

// The outputs of some sources.
struct Translations {
  std::vector<std::vector<Translation>> best;  // per source, best first; an empty one has an empty text
  std::vector<std::vector<std::string>> source_tokens;  // for each source
  int64_t cut = 0;                                      // number of truncated sources
};

// Sampling instead of beam search. Samples have consecutive seeds from `seed` on; sources are numbered by
// length, the shortest first.
struct Drawing {
  SamplerOptions sampler = {};
  uint64_t seed = 0;
  int64_t samples = 1;
};

// Further options of translate().
struct TranslateOptions {
  int64_t batch_tokens = 2048;          // source tokens that are worked on at a time, about
  int64_t longest_source = 0;           // tokens; longer sources are truncated; 0: the model's maximum
  std::vector<std::string> begin = {};  // the beginning of each output; empty, or one for each source
  bool replace_unknowns = false;        // replace unknown tokens with the source words they attend to most
  std::optional<Drawing> drawing = {};
};

// Encodes, searches (or samples) and decodes. All sources are in one queue, the shortest first: where one is
// done, the next one takes its place. The outputs are in the sources' order. If search.prefix_bias is above
// 0, outputs need not begin with options.begin.
Translations translate(const SequenceModel& m, const std::vector<std::string>& sources, BeamOptions search,
                       const TranslateOptions& options = {});

}  // namespace qkv
