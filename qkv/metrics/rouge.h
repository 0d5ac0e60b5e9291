// ROUGE-L (Lin 2004): what a text and its reference have in common in the same order, as the Python package
// rouge_score computes it without stemming.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// Shares of the longest common subsequence of words, each 0 to 1.
struct RougeL {
  double precision = 0;  // of the hypothesis' words
  double recall = 0;     // of the reference's words
  double f1 = 0;
};

// Of one pair of texts, their words without regard to case. UTF-8.
RougeL rouge_l(std::string_view hypothesis, std::string_view reference);

// The means over pairs; zeros when there are none. REQUIRES: as many of one as of the other; UTF-8.
RougeL corpus_rouge_l(std::span<const std::string> hypotheses, std::span<const std::string> references);

// How many texts hold a word at all: where no reference does, as in scripts without Latin letters, ROUGE-L
// says nothing.
int64_t count_with_rouge_words(std::span<const std::string> texts);

// True where its words hold at least half of all letters and digits of the texts: of other scripts ROUGE-L
// says nothing.
bool rouge_applies(std::span<const std::string> texts);

// rouge_score's words: runs of a-z and 0-9 of the text in lower case. All other letters separate words.
std::vector<std::string> rouge_words(std::string_view text);

}  // namespace qkv
