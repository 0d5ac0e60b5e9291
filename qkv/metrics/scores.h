// Scores for classes, tags and answers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace qkv {

// Counts how often class `gold` was predicted as class `predicted`: count[gold * classes + predicted].
struct ConfusionMatrix {
  int64_t classes = 0;
  std::vector<int64_t> count;
  std::vector<int64_t> missed;  // examples of each gold class without a prediction, which count as wrong

  ConfusionMatrix() = default;
  explicit ConfusionMatrix(int64_t classes) : classes(classes), count(classes * classes), missed(classes) {}
  void add(int64_t gold, int64_t predicted) { ++count[gold * classes + predicted]; }
  void miss(int64_t gold) { ++missed[gold]; }
  int64_t total() const;
  int64_t gold(int64_t c) const;       // examples of this class
  int64_t predicted(int64_t c) const;  // predictions of this class

  double accuracy() const;
  // Share of predictions of class c that are right, and share of class c that was predicted. 0 if there are
  // none.
  double precision(int64_t c) const;
  double recall(int64_t c) const;
  // F1 = 2 P R / (P + R) of one class; 0 if it was never predicted or does not occur.
  double f1(int64_t c) const;
  // The mean F1 of classes that occur or were predicted.
  double macro_f1() const;
  // F1 of all decisions together. This is the accuracy unless some were missed, which count as not
  // predicted.
  double micro_f1() const;
  // The correlation of gold and predicted classes, in [-1, 1] (Matthews 1975; for several classes Gorodkin
  // 2004).
  double matthews() const;
};

// Counts of labels of which several may apply to a text.
class LabelSets {
 public:
  LabelSets() = default;
  explicit LabelSets(int64_t labels) : counts_(static_cast<size_t>(labels)) {}
  // `gold`, `predicted`: for each label whether it applies.
  void add(const std::vector<bool>& gold, const std::vector<bool>& predicted);

  int64_t labels() const { return std::ssize(counts_); }
  int64_t gold(int64_t label) const { return counts_[static_cast<size_t>(label)].gold; }
  // As in ConfusionMatrix, of one label.
  double precision(int64_t label) const;
  double recall(int64_t label) const;
  double f1(int64_t label) const;
  // The mean F1 of labels that occur or were predicted, and the F1 of all decisions together.
  double macro_f1() const;
  double micro_f1() const;
  // Share of texts whose labels are all right.
  double exact_match() const;

 private:
  struct Count {
    int64_t gold = 0, predicted = 0, right = 0;
    double f1() const;
  };
  std::vector<Count> counts_;
  int64_t texts_ = 0, exact_ = 0;
};

// Numbers and what was predicted for them.
struct NumberPairs {
  std::vector<double> gold, predicted;

  double rmse() const;  // root of the mean squared error
  double mae() const;   // mean absolute error
  // Correlations, of the numbers and of their ranks (equal numbers share the mean of theirs); 0 if either
  // side is constant.
  double pearson() const;
  double spearman() const;
};

// A run of tokens [begin, end) with a type.
struct Chunk {
  int64_t begin, end;
  std::string type;
  bool operator==(const Chunk&) const = default;
};

// The chunks described by tags B-X, I-X, O (also E-X, S-X), as conlleval reads them: an I-X after another
// type begins a chunk. Any other tag is a separate chunk with the tag as its type.
std::vector<Chunk> chunks_of(std::span<const std::string> tags);

// True if tags describe chunks: one of them is B-X or I-X. Part-of-speech tags, for example, do not.
bool describe_chunks(std::span<const std::string> tags);

// Precision, recall and F1 of chunks, summed over sentences.
struct ChunkCounts {
  int64_t gold = 0, predicted = 0, correct = 0;
  void add(std::span<const std::string> gold_tags, std::span<const std::string> predicted_tags);
  double precision() const;
  double recall() const;
  double f1() const;
};

// F1 of the words that two answers share (Rajpurkar et al. 2016), ignoring case, punctuation and articles.
double answer_f1(const std::string& gold, const std::string& predicted);
// True if they are equal apart from these.
bool answer_matches(const std::string& gold, const std::string& predicted);

}  // namespace qkv
