// chrF (Popović 2015): character n-gram F-score, as sacreBLEU (Post 2018) computes it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace qkv {

inline constexpr size_t kChrfOrder = 6;  // length of the longest n-grams

// Counts of n-grams of one length.
struct ChrfCounts {
  int64_t hypothesis = 0, reference = 0, matches = 0;
};

// A corpus's score and its counts.
struct Chrf {
  double score = 0;  // 0 to 100
  std::array<ChrfCounts, kChrfOrder> counts = {};
};

// chrF2: recall counts twice as much as precision. One reference for each hypothesis; mixed case, without
// white space, averaged over the lengths for which both sides have n-grams. REQUIRES: equally many of both;
// UTF-8.
Chrf corpus_chrf(std::span<const std::string> hypotheses, std::span<const std::string> references);

// sacreBLEU's signature for these settings.
inline constexpr const char* kChrfSignature = "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no";

}  // namespace qkv
