// Roles of attention heads, measured on texts: how much of their attention goes to the previous token, to a
// token like this one, to what followed its like, or from a verb to its object.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "qkv/models/transformer.h"

namespace qkv {

// A head of a model's last stack and the shares of its attention, each from 0 to 1: the mean over the queries
// that have such a key.
struct HeadRole {
  int64_t layer = 0, head = 0;
  double previous = 0;   // the token before
  double next = 0;       // the token behind
  double first = 0;      // the first token, of queries behind the second
  double same = 0;       // the token itself
  double duplicate = 0;  // earlier tokens that are the same
  double induction = 0;  // tokens behind earlier ones that are the same (Olsson et al. 2022)
  // The share of queries whose most attended key is at `distance`, the head's most frequent one: negative for
  // earlier keys (Voita et al. 2019, positional heads).
  double positional = 0;
  int64_t distance = 0;

  // The role with the largest share, if it is at least 0.4, else "": "previous token", "induction", ...
  std::string name() const;
};

// Measures the roles of all heads over passes, of which it keeps sums alone.
class RoleMeter {
 public:
  // Throws Error if nothing in the model's last stack attends. `model` must outlive it.
  explicit RoleMeter(const Transformer& model);
  ~RoleMeter();
  RoleMeter(const RoleMeter&) = delete;
  RoleMeter& operator=(const RoleMeter&) = delete;
  void add(const ModelInput& input);
  // By layer, then by head.
  std::vector<HeadRole> roles() const;

 private:
  struct Heads;
  const Transformer& model_;
  std::unique_ptr<Heads> heads_;
};

// Random tokens that come twice, with `begin` before them: what induction heads find, and no text explains.
// `length` tokens in all, at most; ids from `from` up.
std::vector<int32_t> repeated_tokens(const std::vector<int32_t>& begin, int64_t from, int64_t vocab,
                                     int64_t length, uint64_t seed);

// A pass, the tokens [begin, end) of each of its words, and pairs of words by their places.
struct RelatedWords {
  ModelInput input;
  std::vector<std::pair<int32_t, int32_t>> words;
  std::vector<std::pair<int32_t, int32_t>> pairs;  // from one, find the other
};

// How often the word that a head attends to most is the one to find.
struct RelationScore {
  int64_t layer = 0, head = 0, found = 0;
};

// Measures how well heads find one word from another (Clark et al. 2019): the attention to a word is the sum
// over its tokens, that of a word the mean over its tokens. The word itself and tokens of no word do not
// count.
class RelationMeter {
 public:
  // As RoleMeter.
  explicit RelationMeter(const Transformer& model);
  ~RelationMeter();
  RelationMeter(const RelationMeter&) = delete;
  RelationMeter& operator=(const RelationMeter&) = delete;
  void add(const RelatedWords& text);
  int64_t pairs() const { return pairs_; }
  // By layer, then by head.
  std::vector<RelationScore> scores() const;
  // The distance in words, negative for earlier ones, at which most words would be found, and how many.
  std::pair<int64_t, int64_t> best_distance() const;

 private:
  struct Heads;
  const Transformer& model_;
  std::unique_ptr<Heads> heads_;
  int64_t pairs_ = 0;
  std::map<int64_t, int64_t> distances_;
};

}  // namespace qkv
