// Names of baselines, and of the fields with their scores in a run's records.
#pragma once

#include <string>
#include <string_view>

namespace qkv {

// Baselines for tags.
inline constexpr const char* kFrequentTag = "most frequent tag";
// Looks up words and their endings.
inline constexpr const char* kWordsAndSuffixes = "words and suffixes";
// Baselines for classes.
inline constexpr const char* kFrequentClass = "most frequent class";
// Naive Bayes over words.
inline constexpr const char* kNaiveBayes = "naive Bayes";

// Baselines for choices: the position that is right most often, and the share that guesses find.
inline constexpr const char* kFrequentPosition = "most frequent position";
inline constexpr const char* kGuess = "a guess";

// Baseline for labels of which several may apply.
inline constexpr const char* kFrequentLabels = "most frequent labels";
// Baseline for numbers.
inline constexpr const char* kMeanNumber = "mean of training";

// The field with a baseline's accuracy in a run's records: "naive Bayes" -> "baseline_naive_bayes".
inline constexpr std::string_view kBaselinePrefix = "baseline_";
std::string baseline_key(const std::string& name);
// The name of the baseline of such a field, for display. Earlier runs have "baseline_naive Bayes".
std::string baseline_name(std::string_view field);
// The score that a baseline, by its name, is measured with: accuracy, exact_match or rmse.
const char* baseline_score(std::string_view name);

}  // namespace qkv
