// Names of baselines, and of the fields in a run's records that have their scores.
#pragma once

#include <string>
#include <string_view>

namespace qkv {

// Baselines of tags.
inline constexpr const char* kFrequentTag = "most frequent tag";
// It looks up words and their endings.
inline constexpr const char* kWordsAndSuffixes = "words and suffixes";
// Baselines of classes.
inline constexpr const char* kFrequentClass = "most frequent class";
// Naive Bayes over words.
inline constexpr const char* kNaiveBayes = "naive Bayes";

// The field of a run's records with a baseline's accuracy: "naive Bayes" -> "baseline_naive_bayes".
inline constexpr std::string_view kBaselinePrefix = "baseline_";
std::string baseline_key(const std::string& name);
// The baseline of such a field, as people write it. Earlier runs have "baseline_naive Bayes".
std::string baseline_name(std::string_view field);

}  // namespace qkv
