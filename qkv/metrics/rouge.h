// ROUGE-L (Lin 2004): the longest common subsequence of a text and its reference, as the Python package
// rouge_score computes it without stemming.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// The longest common subsequence of words as shares from 0 to 1.
struct RougeL {
  double precision = 0;  // as a share of the hypothesis' words
  double recall = 0;     // as a share of the reference's words
  double f1 = 0;
};

// ROUGE-L of one pair of texts; case is ignored. REQUIRES: UTF-8.
RougeL rouge_l(std::string_view hypothesis, std::string_view reference);

// The means over pairs; zeros if there are none. REQUIRES: equally many of both; UTF-8.
RougeL corpus_rouge_l(std::span<const std::string> hypotheses, std::span<const std::string> references);

// Number of texts with at least one word. ROUGE-L is meaningless if no reference has one, as in scripts
// other than Latin.
int64_t count_with_rouge_words(std::span<const std::string> texts);

// True if its words have at least half of all letters and digits of the texts. For other scripts ROUGE-L is
// meaningless.
bool rouge_applies(std::span<const std::string> texts);

// rouge_score's words: runs of a-z and 0-9 of the text in lower case. All other letters separate words.
std::vector<std::string> rouge_words(std::string_view text);

}  // namespace qkv
