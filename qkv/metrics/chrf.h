// chrF (Popović 2015): character n-gram F-score, as sacreBLEU (Post 2018) computes it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace qkv {

inline constexpr size_t kChrfOrder = 6;  // longest n-grams

// How often n-grams of one length occur.
struct ChrfCounts {
  int64_t hypothesis = 0, reference = 0, matches = 0;
};

// A corpus's score and the counts it is made of.
struct Chrf {
  double score = 0;  // 0 to 100
  std::array<ChrfCounts, kChrfOrder> counts = {};
};

// chrF2: recall counts twice as much as precision. One reference for each hypothesis; mixed case, white space
// left out, averages over the lengths of which both sides have n-grams. REQUIRES: as many of one as of the
// other; UTF-8.
Chrf corpus_chrf(std::span<const std::string> hypotheses, std::span<const std::string> references);

// What sacreBLEU would call these settings.
inline constexpr const char* kChrfSignature = "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no";

}  // namespace qkv
