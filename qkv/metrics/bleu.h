// BLEU (Papineni et al. 2002), as sacreBLEU (Post 2018) computes it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "qkv/metrics/bleu_tokenizer.h"

namespace qkv {

// A corpus's score and its components.
struct Bleu {
  double score = 0;                       // 0 to 100
  std::array<double, 4> precisions = {};  // for 1- to 4-grams, in percent, smoothed
  double brevity_penalty = 0;
  int64_t hypothesis_length = 0, reference_length = 0;  // in words

  // "BLEU = 36.12 68.1/43.0/29.4/20.3 (BP = 0.990 ratio = 0.990 hyp_len = 11976 ref_len = 12103)"
  std::string text() const;
};

// One reference for each hypothesis; mixed case, exponential smoothing. REQUIRES: equally many of both.
Bleu corpus_bleu(std::span<const std::string> hypotheses, std::span<const std::string> references,
                 BleuTokenizer tokenizer = BleuTokenizer::mteval_13a);

// sacreBLEU's signature for these settings.
std::string bleu_signature(BleuTokenizer tokenizer);

}  // namespace qkv
