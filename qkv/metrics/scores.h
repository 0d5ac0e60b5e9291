// How well classes, tags and answers are found.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace qkv {

// How often class `gold` was taken for class `predicted`: count[gold classes + predicted].
struct ConfusionMatrix {
  int64_t classes = 0;
  std::vector<int64_t> count;
  std::vector<int64_t> missed;  // of each gold class, for what no class was found: wrong

  ConfusionMatrix() = default;
  explicit ConfusionMatrix(int64_t classes) : classes(classes), count(classes * classes), missed(classes) {}
  void add(int64_t gold, int64_t predicted) { ++count[gold * classes + predicted]; }
  void miss(int64_t gold) { ++missed[gold]; }
  int64_t total() const;
  int64_t gold(int64_t c) const;       // how often there was this class,
  int64_t predicted(int64_t c) const;  // and how often it was found

  double accuracy() const;
  // Of what was found as class c, what was right; of what there was of it, what was found. 0 of nothing.
  double precision(int64_t c) const;
  double recall(int64_t c) const;
  // F1 = 2 P R / (P + R) of one class: 0 where nothing was found, or nothing was there.
  double f1(int64_t c) const;
  // The mean over the classes that occur in either.
  double macro_f1() const;
  // Of all decisions together: the accuracy, unless some were missed, which are not found but not taken for
  // another class either.
  double micro_f1() const;
  // The correlation of gold and predicted, in [-1, 1] (Matthews 1975; of several classes Gorodkin 2004).
  double matthews() const;
};

// A run of tokens with a name, [begin, end).
struct Chunk {
  int64_t begin, end;
  std::string type;
  bool operator==(const Chunk&) const = default;
};

// The chunks that tags B-X, I-X, O describe (also E-X, S-X), as conlleval reads them: an I-X after another
// type begins a chunk. Tags of another form are a chunk each, named by the tag.
std::vector<Chunk> chunks_of(std::span<const std::string> tags);

// Whether tags describe chunks: one of them is B-X or I-X. Tags such as parts of speech do not.
bool describe_chunks(std::span<const std::string> tags);

// Precision, recall and F1 of chunks, added up over sentences.
struct ChunkCounts {
  int64_t gold = 0, predicted = 0, correct = 0;
  void add(std::span<const std::string> gold_tags, std::span<const std::string> predicted_tags);
  double precision() const;
  double recall() const;
  double f1() const;
};

// F1 of the words that two answers share (Rajpurkar et al. 2016), case, punctuation and articles aside.
double answer_f1(const std::string& gold, const std::string& predicted);
// Whether they are the same but for these.
bool answer_matches(const std::string& gold, const std::string& predicted);

}  // namespace qkv
