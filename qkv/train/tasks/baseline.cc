#include "qkv/train/tasks/baseline.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include "qkv/metrics/scores.h"

namespace qkv {
namespace {

using Counts = std::map<std::string, int64_t>;

// The first of those that occur most often.
std::string most_frequent(const Counts& counts) {
  std::string best;
  int64_t most = 0;
  for (const auto& [name, n] : counts)
    if (n > most) best = name, most = n;
  return best;
}

double share(int64_t right, int64_t all) {
  return all > 0 ? static_cast<double>(right) / static_cast<double>(all) : 0;
}

class NaiveBayes {
 public:
  explicit NaiveBayes(const std::vector<Example>& train) {
    for (const Example& e : train) {
      ++examples_[e.label];
      ++all_;
      for (const std::string& w : words_of(e.text)) {
        ++words_[e.label][w];
        ++total_[e.label];
        vocabulary_.insert(w);
      }
    }
  }
  std::string label(const TextPair& text) const {
    const std::vector<std::string> words = words_of(text);
    std::string best;
    double most = 0;
    for (const auto& [label, n] : examples_) {
      double log_p = std::log(share(n, all_));
      const auto counts = words_.find(label);
      const auto total = total_.find(label);
      const double below = static_cast<double>((total == total_.end() ? 0 : total->second) +
                                               static_cast<int64_t>(vocabulary_.size()));
      for (const std::string& w : words) {
        if (!vocabulary_.contains(w)) continue;
        int64_t n_word = 0;
        if (counts != words_.end())  // its examples have words at all
          if (const auto it = counts->second.find(w); it != counts->second.end()) n_word = it->second;
        log_p += std::log(static_cast<double>(n_word + 1) / below);
      }
      if (best.empty() || log_p > most) best = label, most = log_p;
    }
    return best;
  }

 private:
  Counts examples_, total_;
  std::map<std::string, Counts> words_;
  std::set<std::string> vocabulary_;
  int64_t all_ = 0;
};

constexpr size_t kLongestSuffix = 4;

class WordLookUp {
 public:
  explicit WordLookUp(const std::vector<Example>& train) {
    for (const Example& e : train)
      for (size_t w = 0; w < e.words.size(); ++w) {
        ++words_[e.words[w]][e.tags[w]];
        for (size_t n = 0; n <= std::min(kLongestSuffix, e.words[w].size()); ++n)
          ++suffixes_[e.words[w].substr(e.words[w].size() - n)][e.tags[w]];
      }
  }
  std::string tag(const std::string& word) const {
    if (const auto it = words_.find(word); it != words_.end()) return most_frequent(it->second);
    for (size_t n = std::min(kLongestSuffix, word.size());; --n) {
      const auto it = suffixes_.find(word.substr(word.size() - n));
      if (it != suffixes_.end()) return most_frequent(it->second);
      if (n == 0) return "";
    }
  }

 private:
  std::map<std::string, Counts> words_, suffixes_;
};

}  // namespace

std::vector<std::string> words_of(const TextPair& text) {
  std::vector<std::string> words;
  for (const std::string* part : {&text.first, &text.second}) {
    bool inside = false;
    for (const char c : *part) {
      const auto u = static_cast<unsigned char>(c);
      const bool letter = std::isalnum(u) != 0 || u >= 0x80;
      if (std::isspace(u) != 0) {
        inside = false;
        continue;
      }
      if (!letter || !inside) words.emplace_back();
      words.back() += static_cast<char>(std::tolower(u));
      inside = letter;
    }
  }
  return words;
}

std::vector<std::pair<std::string, double>> baselines(const std::vector<Example>& train,
                                                      const std::vector<Example>& test,
                                                      const LabelKind& kind) {
  const Output output = kind.output;
  if (output == Output::span || train.empty() || test.empty()) return {};
  Counts frequencies;
  int64_t frequent = 0, better = 0, all = 0;
  if (output == Output::token_classes) {
    for (const Example& e : train)
      for (const std::string& tag : e.tags) ++frequencies[tag];
    const std::string most = most_frequent(frequencies);
    const WordLookUp look_up(train);
    for (const Example& e : test)
      for (size_t w = 0; w < e.words.size(); ++w, ++all) {
        frequent += e.tags[w] == most ? 1 : 0;
        better += e.tags[w] == look_up.tag(e.words[w]) ? 1 : 0;
      }
    return {{kFrequentTag, share(frequent, all)}, {kWordsAndSuffixes, share(better, all)}};
  }
  if (kind.problem == Problem::regression) {
    NumberPairs pairs;
    double sum = 0;
    for (const Example& e : train) sum += e.number;
    for (const Example& e : test) {
      pairs.gold.push_back(e.number);
      pairs.predicted.push_back(sum / static_cast<double>(train.size()));
    }
    return {{kMeanNumber, pairs.rmse()}};
  }
  if (kind.problem == Problem::multiple_choice) {
    for (const Example& e : train) ++frequencies[std::to_string(e.right)];
    const std::string most = most_frequent(frequencies);
    double guesses = 0;
    for (const Example& e : test) {
      frequent += std::to_string(e.right) == most ? 1 : 0;
      guesses += 1 / static_cast<double>(e.choices.size());
    }
    return {{kFrequentPosition, share(frequent, std::ssize(test))},
            {kGuess, guesses / static_cast<double>(test.size())}};
  }
  for (const Example& e : train) ++frequencies[e.label];
  const std::string most = most_frequent(frequencies);
  if (kind.problem == Problem::multi_label) {
    for (const Example& e : test) frequent += e.label == most ? 1 : 0;
    return {{kFrequentLabels, share(frequent, std::ssize(test))}};
  }
  const NaiveBayes bayes(train);
  for (const Example& e : test) {
    frequent += e.label == most ? 1 : 0;
    better += e.label == bayes.label(e.text) ? 1 : 0;
    ++all;
  }
  return {{kFrequentClass, share(frequent, all)}, {kNaiveBayes, share(better, all)}};
}

}  // namespace qkv
