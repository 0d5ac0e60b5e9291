// The tokenizers of sacreBLEU (Post 2018) that need no other program: how BLEU divides texts into words.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// sacreBLEU's ways to divide texts into words.
enum class BleuTokenizer : uint8_t {
  none,           // words between white space
  mteval_13a,     // "13a": punctuation and symbols of ASCII stand alone, except points and commas in numbers
  characters,     // "char": each character, white space aside
  chinese,        // "zh": Chinese characters stand alone, the rest as 13a
  international,  // "intl" (mteval-v14): punctuation and symbols of all scripts stand alone
};

// sacreBLEU's names, in the order of BleuTokenizer.
inline constexpr const char* kBleuTokenizerNames[] = {"none", "13a", "char", "zh", "intl"};
std::string name_of(BleuTokenizer tokenizer);
// REQUIRES: one of kBleuTokenizerNames.
BleuTokenizer bleu_tokenizer_from_name(std::string_view name);

// The words of one line, as sacreBLEU's tokenizer of this name divides it.
std::vector<std::string> bleu_words(std::string_view line, BleuTokenizer tokenizer);

// The tokenizer for the script of most letters in `references`, and the script's name for people. "zh" for
// Chinese; "char" for Japanese, Thai, Lao, Khmer and Myanmar, which put no spaces between words; else "13a".
struct ChosenTokenizer {
  BleuTokenizer tokenizer = BleuTokenizer::mteval_13a;
  const char* script = "";  // empty where words stand between spaces
};
ChosenTokenizer bleu_tokenizer_for(std::span<const std::string> references);

}  // namespace qkv
