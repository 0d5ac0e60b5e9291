// Corrupted texts that an encoder-decoder learns to restore: T5's span corruption and BART's denoising.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkv/base/rng.h"

namespace qkv {

// The text that the encoder reads, and the text that the decoder is to write.
struct Corrupted {
  std::vector<int32_t> source, target;
};

// Raffel et al. 2020, section 3.1.4: a share `density` of the tokens is removed, in spans of `mean_length`
// on average.
struct SpanCorruption {
  double density = 0.15;
  double mean_length = 3;
  std::vector<int32_t> sentinels;  // replace the spans, in this order
};

// The source has a sentinel for each span; the target has each sentinel followed by its span. Spans do not
// touch, the text begins with a kept token, and there are at most as many spans as sentinels. A text of one
// token becomes the target after a sentinel, and the source is that sentinel. A function of (tokens,
// random).
Corrupted corrupt_spans(std::span<const int32_t> tokens, const SpanCorruption& options,
                        const RandomStream& random);

// Lewis et al. 2020, section 2.2.
struct Denoising {
  double infill = 0.3;     // share of tokens in spans that are each replaced by one mask
  double mean_length = 3;  // mean of the Poisson distribution of span lengths; length 0 inserts a mask
  double deletion = 0;     // share of the other tokens that are deleted
  bool permute = true;     // shuffle the sentences
  int32_t mask = 0;        // mask token
  std::vector<bool> ends;  // by id: true if the token ends a sentence
};

// The source is the noised text, the target the text.
Corrupted add_noise(std::span<const int32_t> tokens, const Denoising& options, const RandomStream& random);

// Raffel et al. 2020, section 3.2 (prefix LM): the text is cut at a place that is drawn from all between two
// tokens. The source is what stands before it, the target the rest; of one token the target is empty.
Corrupted cut_in_two(std::span<const int32_t> tokens, const RandomStream& random);

}  // namespace qkv
