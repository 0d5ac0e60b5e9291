#include "qkv/metrics/rouge.h"

#include <algorithm>

#include "qkv/base/error.h"
#include "qkv/text/unicode.h"

namespace qkv {
namespace {

size_t longest_common_subsequence(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<size_t> lengths(b.size() + 1, 0);  // for the first words of `a` and each prefix of `b`
  for (const std::string& word : a) {
    size_t diagonal = 0;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = lengths[j];
      lengths[j] = word == b[j - 1] ? diagonal + 1 : std::max(above, lengths[j - 1]);
      diagonal = above;
    }
  }
  return lengths.back();
}

}  // namespace

std::vector<std::string> rouge_words(std::string_view text) {
  std::string lower;
  for (size_t i = 0; i < text.size();) {
    const text::Character c = text::character_at(text, i);
    if (c.valid()) text::append_lowercase(lower, c.codepoint);
    if (!c.valid()) lower += ' ';
    i += c.length;
  }
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : lower) {
    const bool part = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (part && !inside) words.emplace_back();
    if (part) words.back() += c;
    inside = part;
  }
  return words;
}

RougeL rouge_l(std::string_view hypothesis, std::string_view reference) {
  const auto ours = rouge_words(hypothesis), theirs = rouge_words(reference);
  const auto common = static_cast<double>(longest_common_subsequence(ours, theirs));
  RougeL rouge;
  if (common == 0) return rouge;
  rouge.precision = common / static_cast<double>(ours.size());
  rouge.recall = common / static_cast<double>(theirs.size());
  rouge.f1 = 2 * rouge.precision * rouge.recall / (rouge.precision + rouge.recall);
  return rouge;
}

RougeL corpus_rouge_l(std::span<const std::string> hypotheses, std::span<const std::string> references) {
  check(hypotheses.size() == references.size(), "ROUGE-L: {} hypotheses for {} references", hypotheses.size(),
        references.size());
  RougeL mean;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const auto [precision, recall, f1] = rouge_l(hypotheses[i], references[i]);
    const auto count = static_cast<double>(hypotheses.size());
    mean.precision += precision / count;
    mean.recall += recall / count;
    mean.f1 += f1 / count;
  }
  return mean;
}

int64_t count_with_rouge_words(std::span<const std::string> texts) {
  return std::ranges::count_if(texts, [](const std::string& text) { return !rouge_words(text).empty(); });
}

bool rouge_applies(std::span<const std::string> texts) {
  int64_t seen = 0, letters = 0;
  for (const std::string& text : texts) {
    for (const std::string& word : rouge_words(text)) seen += std::ssize(word);
    for (size_t i = 0; i < text.size();) {
      const text::Character c = text::character_at(text, i);
      if (c.valid())
        letters += text::class_of(c.codepoint) == text::CharacterClass::kLetter ||
                   (c.codepoint >= '0' && c.codepoint <= '9');
      i += c.length;
    }
  }
  return seen > 0 && 2 * seen >= letters;
}

}  // namespace qkv
