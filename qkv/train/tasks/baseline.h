// Baselines: what simple methods reach on the same examples.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "qkv/metrics/baseline_names.h"
#include "qkv/train/corpora/examples.h"

namespace qkv {

// Runs of letters and digits in lower case, and every other character that is no space; of both texts.
std::vector<std::string> words_of(const TextPair& text);

// The accuracy of simple methods that learn from `train`, on `test`, by their names. Of classes: always the
// most frequent one; naive Bayes over words (multinomial, counts of every word plus one). Of tags: the most
// frequent one; what a word was tagged most often, of an unknown word what its longest known suffix of at
// most four bytes was. Of answers: none.
std::vector<std::pair<std::string, double>> baselines(const std::vector<Example>& train,
                                                      const std::vector<Example>& test, Output output);

}  // namespace qkv
