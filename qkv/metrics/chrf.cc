#include "qkv/metrics/chrf.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/text/unicode.h"

namespace qkv {
namespace {

constexpr double kBeta = 2;  // the weight of recall

// The text without white space (Python's, with four control characters), and the beginnings of its
// characters and its end.
struct Characters {
  std::string text;
  std::vector<size_t> begins;

  explicit Characters(std::string_view line) {
    for (size_t i = 0; i < line.size();) {
      const text::Character c = text::character_at(line, i);
      if (!text::is_space(c.codepoint) && !(c.codepoint >= 0x1C && c.codepoint <= 0x1F)) {
        begins.push_back(text.size());
        text += line.substr(i, c.length);
      }
      i += c.length;
    }
    begins.push_back(text.size());
  }

  std::unordered_map<std::string_view, int64_t> ngrams(size_t n) const {
    std::unordered_map<std::string_view, int64_t> counts;
    for (size_t i = 0; i + n < begins.size(); ++i)
      ++counts[std::string_view(text).substr(begins[i], begins[i + n] - begins[i])];
    return counts;
  }
};

void add_counts(const Characters& hypothesis, const Characters& reference, size_t n, ChrfCounts& counts) {
  const auto ours = hypothesis.ngrams(n), theirs = reference.ngrams(n);
  for (const auto& [ngram, count] : theirs) counts.reference += count;
  if (theirs.empty()) return;  // without reference n-grams, those of the hypothesis do not count
  for (const auto& [ngram, count] : ours) {
    counts.hypothesis += count;
    if (const auto it = theirs.find(ngram); it != theirs.end()) counts.matches += std::min(count, it->second);
  }
}

}  // namespace

Chrf corpus_chrf(std::span<const std::string> hypotheses, std::span<const std::string> references) {
  check(hypotheses.size() == references.size(), "chrF: {} hypotheses for {} references", hypotheses.size(),
        references.size());
  Chrf chrf;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const Characters hypothesis(hypotheses[i]), reference(references[i]);
    for (size_t n = 1; n <= kChrfOrder; ++n) add_counts(hypothesis, reference, n, chrf.counts[n - 1]);
  }
  double precision = 0, recall = 0;
  int orders = 0;
  for (const auto& [hypothesis, reference, matches] : chrf.counts) {
    if (hypothesis == 0 || reference == 0) continue;
    precision += static_cast<double>(matches) / static_cast<double>(hypothesis);
    recall += static_cast<double>(matches) / static_cast<double>(reference);
    ++orders;
  }
  if (precision + recall == 0) return chrf;
  precision /= orders;
  recall /= orders;
  constexpr double kFactor = kBeta * kBeta;
  chrf.score = 100 * (1 + kFactor) * precision * recall / (kFactor * precision + recall);
  return chrf;
}

}  // namespace qkv
