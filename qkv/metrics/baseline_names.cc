#include "qkv/metrics/baseline_names.h"

#include <algorithm>
#include <cctype>

namespace qkv {

std::string baseline_key(const std::string& name) {
  std::string key(kBaselinePrefix);
  for (const char c : name)
    key += c == ' ' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return key;
}

std::string baseline_name(std::string_view field) {
  std::string name(field.substr(kBaselinePrefix.size()));
  for (const char* known : {kFrequentTag, kWordsAndSuffixes, kFrequentClass, kNaiveBayes})
    if (baseline_key(known) == field) return known;
  std::ranges::replace(name, '_', ' ');
  return name;
}

const char* baseline_score(std::string_view name) {
  if (name.starts_with(kFrequentLabels)) return "exact_match";
  return name.starts_with(kMeanNumber) ? "rmse" : "accuracy";
}

}  // namespace qkv
