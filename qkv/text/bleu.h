// BLEU (Papineni et al. 2002), as sacreBLEU (Post 2018) computes it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::text {

// A corpus's score and what it is made of.
struct Bleu {
  double score = 0;                       // 0 to 100
  std::array<double, 4> precisions = {};  // of 1- to 4-grams, in percent, smoothed
  double brevity_penalty = 0;
  int64_t hypothesis_length = 0, reference_length = 0;  // in words

  // "BLEU = 36.12 68.1/43.0/29.4/20.3 (BP = 0.990 ratio = 0.990 hyp_len = 11976 ref_len = 12103)"
  std::string text() const;
};

// One reference for each hypothesis; mixed case, mteval-v13a's words, exponential smoothing.
// REQUIRES: as many of one as of the other.
Bleu corpus_bleu(std::span<const std::string> hypotheses, std::span<const std::string> references);

// What sacreBLEU would call these settings.
inline constexpr const char* kBleuSignature = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp";

// The words of mteval-v13a: punctuation and symbols stand alone, but for periods and commas inside numbers.
std::vector<std::string> words_13a(std::string_view line);

}  // namespace qkv::text
