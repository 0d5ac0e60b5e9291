// Texts that an encoder-decoder learns to restore: T5's span corruption and BART's denoising.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkv/base/rng.h"

namespace qkv {

// What the encoder reads, and what the decoder is to write.
struct Corrupted {
  std::vector<int32_t> source, target;
};

// Raffel et al. 2020, section 3.1.4: `density` of the tokens are taken away, in spans of `mean_length` on
// average.
struct SpanCorruption {
  double density = 0.15;
  double mean_length = 3;
  std::vector<int32_t> sentinels;  // one stands for each span, in their order
};

// The source has a sentinel for each span; the target has each sentinel followed by its span. Spans do not
// touch, the text begins with a token that stays, and there are as many spans as sentinels at most. A text of
// one token is its own target behind a sentinel. A function of (tokens, random).
Corrupted corrupt_spans(std::span<const int32_t> tokens, const SpanCorruption& options,
                        const RandomStream& random);

// Lewis et al. 2020, section 2.2.
struct Denoising {
  double infill = 0.3;     // of the tokens lie in spans that one mask each stands for,
  double mean_length = 3;  // of lengths drawn from a Poisson distribution: 0 puts a mask in
  double deletion = 0;     // of the others are left out
  bool permute = true;     // sentences stand in another order
  int32_t mask = 0;        // the mask
  std::vector<bool> ends;  // of each id: ends a sentence
};

// The source is the noised text, the target the text.
Corrupted add_noise(std::span<const int32_t> tokens, const Denoising& options, const RandomStream& random);

}  // namespace qkv
