// Batches of pairs.
// Covers: qkv/infer/translate.cc
#include "qkv/data/pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "qkv/infer/translate.h"
#include "qkv/text/template.h"
#include "qkv/text/trainer.h"
#include "qkv/train/corpora/corpus.h"

namespace qkv::pairs_test {
namespace {

// Pair d: a source of d, ..., d and a target of 1000 + d, ..., whose lengths vary.
PairStream pairs(int count) {
  PairStream p;
  for (int d = 0; d < count; ++d) {
    p.source.append(std::vector<int32_t>(1 + d * 7 % 13, d));
    p.target.append(std::vector<int32_t>(1 + d * 5 % 11, 1000 + d));
  }
  return p;
}

const SequenceEnds kEnds{5000, 6000};

PairLayout shape(int64_t context) {
  return {context, true, false};
}

std::vector<int32_t> values(const Indices& t) {
  const auto v = t.values();
  return {v.begin(), v.end()};
}

// The special tokens of a tokenizer are also around sources (BART: <s> source </s>; mBART: source </s>
// en_XX).
TEST(Pairs, WhatStandsAroundASource) {
  PairStream p;
  p.source.append({1, 2, 3});
  p.target.append({11});
  const SequenceEnds ends{7, 8, {20, 21}, {8, 22}};
  const std::vector<int64_t> which = {0};
  const auto source = [&](int64_t context) {
    return values(pair_batch(p, which, ends, shape(context)).source);
  };
  EXPECT_EQ(source(9), (std::vector<int32_t>{20, 21, 1, 2, 3, 8, 22}));
  EXPECT_EQ(source(5), (std::vector<int32_t>{20, 21, 1, 8, 22}));
  EXPECT_EQ(pair_lengths(p, ends, 9), (std::vector<int64_t>{7 + 2}));
  const PairLayout alone = {12, false, false};
  const Batch b = pair_batch(p, which, ends, alone);
  EXPECT_EQ(values(b.ids), (std::vector<int32_t>{20, 21, 1, 2, 3, 8, 22, 7, 11}));
  EXPECT_EQ(values(b.targets)[7], 11);
  EXPECT_EQ(b.target_count, 2);
}

TEST(Pairs, SourcesHaveAroundThemWhatTheirTokenizerPutsThere) {
  text::TrainerOptions options;
  options.special_tokens = {"<s>", "</s>", "[SEP]"};
  const text::Tokenizer plain = text::train_bytes(options);
  SequenceEnds ends{0, 1};
  surround_sources(ends, plain, 1);
  EXPECT_EQ(ends.source_begin, (std::vector<int32_t>{}));
  EXPECT_EQ(ends.source_end, (std::vector<int32_t>{1}));
  surround_sources(ends, text::with_template(plain, "<s>", "</s>"), 1);
  EXPECT_EQ(ends.source_begin, (std::vector<int32_t>{0}));
  EXPECT_EQ(ends.source_end, (std::vector<int32_t>{1}));
  ModelSpec spec;
  spec.architecture = Architecture::encoder_decoder;
  spec.context = 9;
  EXPECT_EQ(longest_source(spec, ends), 7U);
  surround_sources(ends, text::with_template(plain, "<s>", "[SEP]"), 1);  // which ends them in another way
  EXPECT_EQ(ends.source_begin, (std::vector<int32_t>{}));
  EXPECT_EQ(ends.source_end, (std::vector<int32_t>{1}));
}

// BART's targets are </s> <s> text </s>. They begin with the tokenizer's first token if decoding starts
// with another one, or with the token that the model's authors force (a language).
TEST(Pairs, WhatTargetsBeginWith) {
  text::TrainerOptions options;
  options.special_tokens = {"<s>", "</s>", "en_XX"};
  const text::Tokenizer plain = text::train_bytes(options), bart = text::with_template(plain, "<s>", "</s>");
  const auto begin = [](const text::Tokenizer& tokenizer, int32_t start, const SpecialIds& ids) {
    return ends_between(tokenizer, start, 1, ids).target_begin;
  };
  EXPECT_EQ(begin(bart, 1, {.bos = 0}), std::vector<int32_t>{0});
  EXPECT_EQ(begin(bart, 0, {.bos = 0}), std::vector<int32_t>{});
  EXPECT_EQ(begin(plain, 1, {.bos = 0}), std::vector<int32_t>{});
  EXPECT_EQ(begin(plain, 1, {.bos = 0, .forced_bos = 2}), std::vector<int32_t>{2});
  PairStream p;
  p.source.append({1, 2});
  p.target.append({11, 12});
  SequenceEnds ends{7, 8};
  ends.target_begin = {9};
  const Batch b = pair_batch(p, std::vector<int64_t>{0}, ends, shape(9));
  EXPECT_EQ(values(b.ids), (std::vector<int32_t>{7, 9, 11, 12}));
  EXPECT_EQ(values(b.targets), (std::vector<int32_t>{9, 11, 12, 8}));
  EXPECT_EQ(pair_lengths(p, ends, 9), (std::vector<int64_t>{3 + 4}));
  EXPECT_EQ(values(pair_batch(p, std::vector<int64_t>{0}, ends, shape(3)).targets),
            (std::vector<int32_t>{9, 11, 12}));
}

TEST(Pairs, ABatch) {
  PairStream p;
  p.source.append({1, 2, 3, 4});
  p.target.append({11, 12});
  p.source.append({5});
  p.target.append({13, 14, 15, 16});
  const std::vector<int64_t> which = {1, 0};
  const Batch b = pair_batch(p, which, kEnds, shape(4));  // cuts to four tokens, the ends included
  EXPECT_EQ(values(b.source), (std::vector<int32_t>{5, 6000, 1, 2, 3, 6000}));
  EXPECT_EQ(b.source_layout.offsets, (std::vector<int32_t>{0, 2, 6}));
  EXPECT_EQ(values(b.ids), (std::vector<int32_t>{5000, 13, 14, 15, 5000, 11, 12}));
  EXPECT_EQ(values(b.targets), (std::vector<int32_t>{13, 14, 15, 16, 11, 12, 6000}));
  EXPECT_EQ(b.layout.offsets, (std::vector<int32_t>{0, 4, 7}));
  EXPECT_EQ(b.target_count, 7);
  const CutPairs cut = count_cut(p, kEnds, shape(4)), less = count_cut(p, kEnds, shape(5));
  EXPECT_EQ(cut.sources, 1);
  EXPECT_EQ(cut.targets, 1);
  EXPECT_EQ(less.sources + less.targets, 0);
}

// Training batches of pairs.
class PairBatches {
 public:
  PairBatches(const PairStream& pairs, int64_t tokens, uint64_t seed)
      : pairs_(pairs), batches_(pair_lengths(pairs, kEnds, 64), tokens, seed) {}
  Batch batch(uint64_t index) { return pair_batch(pairs_, batches_.items(index), kEnds, shape(64)); }
  int64_t batches_per_epoch() const { return batches_.batches_per_epoch(); }

 private:
  const PairStream& pairs_;
  LengthBatches batches_;
};

TEST(Pairs, EachEpochHasEveryPairOnce) {
  const PairStream p = pairs(100);
  PairBatches batches(p, 60, 3);
  std::vector<std::vector<int32_t>> orders;
  uint64_t index = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::map<int32_t, int> seen;
    std::vector<int32_t> order;
    while (order.size() < 100) {
      const Batch b = batches.batch(index++);
      EXPECT_LE(b.source.count() + b.ids.count(), 60);
      for (int64_t s = 0; s < b.layout.sequences(); ++s) {
        const int32_t d = values(b.source)[b.source_layout.offsets[s]];
        EXPECT_EQ(values(b.targets)[b.layout.offsets[s]], 1000 + d);
        EXPECT_EQ(b.layout.offsets[s + 1] - b.layout.offsets[s], 2 + d * 5 % 11);
        ++seen[d];
        order.push_back(d);
      }
    }
    EXPECT_EQ(seen.size(), 100u);
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(Pairs, ABatchIsAFunctionOfSeedAndIndex) {
  const PairStream p = pairs(50);
  PairBatches forwards(p, 80, 3), again(p, 80, 3), other(p, 80, 4);
  const auto index = static_cast<uint64_t>(3 * forwards.batches_per_epoch());
  const auto late = values(forwards.batch(index).source);
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(values(forwards.batch(i).source), values(again.batch(i).source));
  EXPECT_EQ(values(forwards.batch(index).source), late);
  EXPECT_NE(values(other.batch(0).source), values(again.batch(0).source));
}

TEST(Pairs, OfLikeLengthsStandTogether) {
  const PairStream p = pairs(200);
  int64_t spread = 0, sequences = 0;
  PairBatches batches(p, 100, 1);
  for (int64_t i = 0; i < batches.batches_per_epoch(); ++i) {
    const Batch b = batches.batch(static_cast<uint64_t>(i));
    int32_t least = 1000, most = 0;
    for (int64_t s = 0; s < b.layout.sequences(); ++s) {
      const int32_t n = b.layout.offsets[s + 1] - b.layout.offsets[s] + b.source_layout.offsets[s + 1] -
                        b.source_layout.offsets[s];
      least = std::min(least, n), most = std::max(most, n);
    }
    spread += most - least;
    sequences += b.layout.sequences();
  }
  EXPECT_EQ(sequences, 200);
  EXPECT_LE(spread, 2 * batches.batches_per_epoch());  // the sums are from 4 to about 20
}

TEST(Pairs, ByLengthHasEveryPair) {
  const PairStream p = pairs(40);
  std::vector<int64_t> all;
  for (const auto& batch : batches_by_length(pair_lengths(p, kEnds, 64), 50))
    all.insert(all.end(), batch.begin(), batch.end());
  std::sort(all.begin(), all.end());
  for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(all[i], i);
}

}  // namespace
}  // namespace qkv::pairs_test
