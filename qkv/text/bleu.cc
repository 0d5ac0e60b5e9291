#include "qkv/text/bleu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "qkv/base/error.h"
#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

void replace_all(std::string& s, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = s.find(from, at)) != std::string::npos; at += to.size())
    s.replace(at, from.size(), to);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_point(char c) {
  return c == '.' || c == ',';
}
// [\{-\~\[-\` -\&\(-\+\:-\@\/]
bool is_symbol(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
         (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

// Each pair of neighbours that `matches`, no two overlapping, becomes before + first + between + second +
// after.
template <typename F>
std::string spaced(const std::string& s, const F& matches, const char* before, const char* between,
                   const char* after) {
  std::string out;
  size_t i = 0;
  while (i < s.size()) {
    if (i + 1 < s.size() && matches(s[i], s[i + 1])) {
      out += before;
      out += s[i];
      out += between;
      out += s[i + 1];
      out += after;
      i += 2;
    } else {
      out += s[i++];
    }
  }
  return out;
}

using Ngram = std::vector<std::string>;

std::map<Ngram, int64_t> ngrams(const std::vector<std::string>& words, size_t n) {
  std::map<Ngram, int64_t> counts;
  for (size_t i = 0; i + n <= words.size(); ++i)
    ++counts[Ngram(words.begin() + static_cast<int64_t>(i), words.begin() + static_cast<int64_t>(i + n))];
  return counts;
}

}  // namespace

// The regular expressions of mteval-v13a.pl, as sacreBLEU applies them one after another. Bytes will do: each
// looks at ASCII alone, beside any other character.
std::vector<std::string> words_13a(std::string_view line) {
  std::string s(line);
  replace_all(s, "<skipped>", "");
  replace_all(s, "-\n", "");
  replace_all(s, "\n", " ");
  replace_all(s, "&quot;", "\"");
  replace_all(s, "&amp;", "&");
  replace_all(s, "&lt;", "<");
  replace_all(s, "&gt;", ">");
  std::string apart = " ";
  for (const char c : s) is_symbol(c) ? (apart += ' ', apart += c, apart += ' ') : apart += c;
  apart += ' ';
  apart = spaced(
      apart, [](char a, char b) { return !is_digit(a) && is_point(b); }, "", " ", " ");
  apart = spaced(
      apart, [](char a, char b) { return is_point(a) && !is_digit(b); }, " ", " ", "");
  apart = spaced(
      apart, [](char a, char b) { return is_digit(a) && b == '-'; }, "", " ", " ");
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (size_t at = 0; at < apart.size();) {
    const Character c = character_at(apart, at);
    if (c.valid() && is_space(c.codepoint))
      end_word();
    else
      word.append(apart, at, c.length);
    at += c.length;
  }
  end_word();
  return words;
}

Bleu corpus_bleu(std::span<const std::string> hypotheses, std::span<const std::string> references) {
  check(hypotheses.size() == references.size(), "BLEU: {} hypotheses need as many references, got {}",
        hypotheses.size(), references.size());
  std::array<int64_t, 4> correct = {}, total = {};
  Bleu b;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const std::vector<std::string> hypothesis = words_13a(hypotheses[i]),
                                   reference = words_13a(references[i]);
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

}  // namespace qkv::text
