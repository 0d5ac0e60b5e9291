// Baselines: the accuracy of simple methods on the same examples.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "qkv/metrics/baseline_names.h"
#include "qkv/train/corpora/examples.h"

namespace qkv {

// Words of both texts: runs of letters and digits in lower case, and every other non-space character.
std::vector<std::string> words_of(const TextPair& text);

// The accuracy on `test` of simple methods that learn from `train`, by name. For classes: always the most
// frequent one; naive Bayes over words (multinomial, add-one smoothing). For tags: the most frequent one;
// the most frequent tag of the word or, if it is unknown, of its longest known suffix of at most four
// bytes. For several labels: the share of texts that have the most frequent set of them. For numbers: the
// RMSE of their mean. For answers: none.
std::vector<std::pair<std::string, double>> baselines(const std::vector<Example>& train,
                                                      const std::vector<Example>& test,
                                                      const LabelKind& kind);

}  // namespace qkv
