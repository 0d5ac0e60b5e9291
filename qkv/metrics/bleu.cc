#include "qkv/metrics/bleu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "qkv/base/error.h"

namespace qkv {
namespace {

using Ngram = std::vector<std::string>;

std::map<Ngram, int64_t> ngrams(const std::vector<std::string>& words, size_t n) {
  std::map<Ngram, int64_t> counts;
  for (size_t i = 0; i + n <= words.size(); ++i)
    ++counts[Ngram(words.begin() + static_cast<int64_t>(i), words.begin() + static_cast<int64_t>(i + n))];
  return counts;
}

}  // namespace

Bleu corpus_bleu(std::span<const std::string> hypotheses, std::span<const std::string> references,
                 BleuTokenizer tokenizer) {
  check(hypotheses.size() == references.size(), "BLEU: {} hypotheses need as many references, got {}",
        hypotheses.size(), references.size());
  std::array<int64_t, 4> correct = {}, total = {};
  Bleu b;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const std::vector<std::string> hypothesis = bleu_words(hypotheses[i], tokenizer),
                                   reference = bleu_words(references[i], tokenizer);
    b.hypothesis_length += std::ssize(hypothesis);
    b.reference_length += std::ssize(reference);
    for (size_t n = 1; n <= 4; ++n) {
      const auto there = ngrams(reference, n);
      for (const auto& [ngram, count] : ngrams(hypothesis, n)) {
        total[n - 1] += count;
        if (const auto it = there.find(ngram); it != there.end())
          correct[n - 1] += std::min(count, it->second);
      }
    }
  }
  b.brevity_penalty =
      b.hypothesis_length >= b.reference_length ? 1
      : b.hypothesis_length == 0
          ? 0
          : std::exp(1 - static_cast<double>(b.reference_length) / static_cast<double>(b.hypothesis_length));
  double smoothing = 1, log_sum = 0;
  for (size_t n = 0; n < 4; ++n) {
    if (total[n] == 0) return b;
    if (correct[n] == 0) smoothing *= 2;
    b.precisions[n] = 100 * (correct[n] == 0 ? 1 / smoothing : static_cast<double>(correct[n])) /
                      static_cast<double>(total[n]);
    log_sum += std::log(b.precisions[n]);
  }
  if (std::all_of(correct.begin(), correct.end(), [](int64_t c) { return c == 0; })) return b;
  b.score = b.brevity_penalty * std::exp(log_sum / 4);
  return b;
}

std::string Bleu::text() const {
  return fmt::format(
      "BLEU = {:.2f} {:.1f}/{:.1f}/{:.1f}/{:.1f} (BP = {:.3f} ratio = {:.3f} hyp_len = {} ref_len = {})",
      score, precisions[0], precisions[1], precisions[2], precisions[3], brevity_penalty,
      reference_length ? static_cast<double>(hypothesis_length) / static_cast<double>(reference_length) : 0,
      hypothesis_length, reference_length);
}

std::string bleu_signature(BleuTokenizer tokenizer) {
  return fmt::format("nrefs:1|case:mixed|eff:no|tok:{}|smooth:exp", name_of(tokenizer));
}

}  // namespace qkv
