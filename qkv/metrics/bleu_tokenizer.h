// Tokenizers of sacreBLEU (Post 2018) that need no other program. They split texts into words for BLEU.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// Tokenizers of sacreBLEU.
enum class BleuTokenizer : uint8_t {
  none,           // words separated by white space
  mteval_13a,     // "13a": splits off ASCII punctuation and symbols, except points and commas in numbers
  characters,     // "char": each character except white space
  chinese,        // "zh": splits off Chinese characters, and the rest as 13a
  international,  // "intl" (mteval-v14): splits off punctuation and symbols of all scripts
};

// sacreBLEU's names, in the order of BleuTokenizer.
inline constexpr const char* kBleuTokenizerNames[] = {"none", "13a", "char", "zh", "intl"};
std::string name_of(BleuTokenizer tokenizer);
// REQUIRES: one of kBleuTokenizerNames.
BleuTokenizer bleu_tokenizer_from_name(std::string_view name);

// Splits a line into words with this tokenizer of sacreBLEU.
std::vector<std::string> bleu_words(std::string_view line, BleuTokenizer tokenizer);

// The tokenizer for the script of most letters in `references`, and the script's name for display. "zh" for
// Chinese; "char" for Japanese, Thai, Lao, Khmer and Myanmar, which put no spaces between words; else
// "13a".
struct ChosenTokenizer {
  BleuTokenizer tokenizer = BleuTokenizer::mteval_13a;
  const char* script = "";  // empty if spaces separate words
};
ChosenTokenizer bleu_tokenizer_for(std::span<const std::string> references);

}  // namespace qkv
