// The tokens that masked language modelling hides, and their replacements.
#include "qkv/data/masking.h"

#include <gtest/gtest.h>

#include <cmath>

#include "qkv/base/rng.h"

namespace qkv::masking_test {
namespace {

constexpr int32_t kVocab = 1000, kMask = 4, kFirst = 2, kLast = 3,
                  kInner = 600;  // ids from here on continue a word
constexpr Surroundings kEnds = {kFirst, kLast};

Masking masking(double rate = 0.15) {
  Masking m;
  m.rate = rate;
  m.mask = kMask;
  m.vocab_size = kVocab;
  m.special.assign(kVocab, false);
  m.inner.assign(kVocab, false);
  for (int32_t id = 0; id < 5; ++id) m.special[id] = true;
  for (int32_t id = kInner; id < kVocab; ++id) m.inner[id] = true;
  return m;
}

// Documents of `length` tokens each, one token in fifty special.
TokenStream stream(int documents, int length) {
  TokenStream s;
  const RandomStream random{7, 0, 0};
  for (int d = 0; d < documents; ++d) {
    std::vector<int32_t> ids;
    for (int i = 0; i < length; ++i) {
      const auto at = static_cast<uint64_t>(d) * length + i;
      ids.push_back(static_cast<int32_t>(random.below(2 * at, 50) == 0 ? random.below(2 * at + 1, 5)
                                                                       : 5 + random.below(2 * at + 1, 995)));
    }
    s.append(ids);
  }
  return s;
}

std::vector<int32_t> values(const Indices& t) {
  const auto v = t.values();
  return {v.begin(), v.end()};
}

// Within five standard deviations: correct code fails with a chance of one in some million, and the seeds
// are fixed.
void expect_share(int64_t found, int64_t of, double p, const char* what) {
  const auto n = static_cast<double>(of);
  EXPECT_NEAR(static_cast<double>(found), n * p, 5 * std::sqrt(n * p * (1 - p))) << what;
}

TEST(Masking, Pieces) {
  TokenStream s;
  s.append({1, 2, 3, 4, 5});
  s.append({});
  s.append({6, 7});
  std::vector<std::pair<int64_t, int64_t>> found;
  for (const Piece& p : pieces_of(s, 2)) found.emplace_back(p.begin, p.end);
  EXPECT_EQ(found, (std::vector<std::pair<int64_t, int64_t>>{{0, 2}, {2, 4}, {4, 5}, {5, 7}}));
  EXPECT_THROW(pieces_of(s, 0), Error);
}

TEST(Masking, RatesAndShares) {
  const TokenStream s = stream(100, 1000);
  const std::vector<Piece> pieces = pieces_of(s, 126);
  const Masking m = masking();
  const Batch b = masked_batch(s, pieces, kEnds, m, 11, 3);
  const std::vector<int32_t> ids = values(b.ids), targets = values(b.targets);
  int64_t ordinary = 0, hidden = 0, by_mask = 0, kept = 0, random = 0, row = 0;
  for (const Piece& p : pieces) {
    EXPECT_EQ(ids[row], kFirst);
    EXPECT_EQ(targets[row++], kIgnored);
    for (int64_t at = p.begin; at < p.end; ++at, ++row) {
      const int32_t token = s.tokens()[at];
      ordinary += token >= 5;
      if (targets[row] == kIgnored) {
        EXPECT_EQ(ids[row], token) << "changed, but not to be found";
        continue;
      }
      ++hidden;
      EXPECT_EQ(targets[row], token);
      EXPECT_GE(token, 5) << "a special token is hidden";
      by_mask += ids[row] == kMask;
      kept += ids[row] == token;
      random += ids[row] != kMask && ids[row] != token;
      EXPECT_TRUE(ids[row] == kMask || ids[row] >= 5) << "a special token in place of another";
    }
    EXPECT_EQ(ids[row], kLast);
    EXPECT_EQ(targets[row++], kIgnored);
  }
  EXPECT_EQ(row, b.ids.count());
  EXPECT_EQ(b.layout.sequences(), std::ssize(pieces));
  EXPECT_EQ(b.target_count, hidden);
  expect_share(hidden, ordinary, 0.15, "hidden");
  expect_share(by_mask, hidden, 0.8, "by the mask");
  const double stays = 0.1 * 6 / kVocab;  // the draw gave a special token, or the token itself
  expect_share(random, hidden, 0.1 - stays, "by another token");
  expect_share(kept, hidden, 0.1 + stays, "as it is");
}

TEST(Masking, OtherSharesAndRates) {
  const TokenStream s = stream(20, 1000);
  const std::vector<Piece> pieces = pieces_of(s, 1000);
  Masking m = masking(0.5);
  m.random = 1;
  m.keep = 0;
  Batch b = masked_batch(s, pieces, kEnds, m, 1, 0);
  expect_share(b.target_count, s.size() * 49 / 50, 0.5, "half");
  int64_t changed = 0;
  const std::vector<int32_t> ids = values(b.ids), targets = values(b.targets);
  for (size_t r = 0; r < ids.size(); ++r) changed += targets[r] != kIgnored && ids[r] != targets[r];
  expect_share(changed, b.target_count, 0.994, "random tokens");
  m.random = 0;
  m.keep = 1;
  b = masked_batch(s, pieces, {}, m, 1, 0);
  EXPECT_EQ(values(b.ids), std::vector<int32_t>(s.tokens().begin(), s.tokens().end()));
  EXPECT_GT(b.target_count, 9000);
}

// Line 4 of Algorithm 12: the mask is exactly at the tokens to predict.
TEST(Masking, WithoutRandomAndKeepItIsAlgorithm12) {
  const TokenStream s = stream(10, 400);
  Masking m = masking(0.3);
  m.random = m.keep = 0;
  const Batch b = masked_batch(s, pieces_of(s, 100), {}, m, 5, 0);
  const std::vector<int32_t> ids = values(b.ids), targets = values(b.targets);
  for (size_t i = 0; i < ids.size(); ++i)
    if (targets[i] == kIgnored)
      EXPECT_EQ(ids[i], s.tokens()[i]);
    else
      EXPECT_EQ(ids[i], kMask);
}

TEST(Masking, WholeWordsAreHiddenAllOrNone) {
  const TokenStream s = stream(100, 500);
  const std::vector<Piece> pieces = pieces_of(s, 70);  // pieces may split words
  Masking m = masking();
  m.whole_words = true;
  const Batch b = masked_batch(s, pieces, {}, m, 1, 0);
  const std::vector<int32_t> targets = values(b.targets);
  int64_t words = 0, hidden_words = 0, inner = 0;
  for (const Piece& p : pieces)
    for (int64_t at = p.begin; at < p.end; ++at) {
      const int32_t token = s.tokens()[at];
      if (token < 5) continue;
      const bool continues = token >= kInner && at > p.begin && s.tokens()[at - 1] >= 5;
      if (continues) {
        ++inner;
        EXPECT_EQ(targets[at] == kIgnored, targets[at - 1] == kIgnored) << "part of the word at " << at;
      } else {
        ++words;
        hidden_words += targets[at] != kIgnored;
      }
    }
  EXPECT_GT(inner, 10000);
  expect_share(hidden_words, words, 0.15, "words");
}

// The masked tokens do not depend on the batch of a piece.
TEST(Masking, IsAFunctionOfSeedDrawAndPlace) {
  const TokenStream s = stream(6, 200);
  const std::vector<Piece> all = pieces_of(s, 200), some = {all[4], all[1]};
  const Masking m = masking();
  const Batch together = masked_batch(s, all, kEnds, m, 3, 9), apart = masked_batch(s, some, kEnds, m, 3, 9);
  const auto piece = [](const Batch& b, int64_t i) {
    std::vector<int32_t> out;
    for (const Indices& of : {b.ids, b.targets})
      for (int32_t r = b.layout.offsets[i]; r < b.layout.offsets[i + 1]; ++r) out.push_back(of[r]);
    return out;
  };
  EXPECT_EQ(piece(together, 4), piece(apart, 0));
  EXPECT_EQ(piece(together, 1), piece(apart, 1));
  EXPECT_EQ(values(together.targets), values(masked_batch(s, all, kEnds, m, 3, 9).targets));
  EXPECT_NE(values(together.targets), values(masked_batch(s, all, kEnds, m, 4, 9).targets));
  EXPECT_NE(values(together.targets), values(masked_batch(s, all, kEnds, m, 3, 10).targets));
  // Equal texts at other places get other masks.
  TokenStream twice;
  const std::vector<int32_t> document(300, 77);
  twice.append(document);
  twice.append(document);
  const Batch b = masked_batch(twice, pieces_of(twice, 300), {}, m, 3, 9);
  EXPECT_NE(piece(b, 0), piece(b, 1));
}

TEST(Masking, AtLeastOneTokenIsHidden) {
  Masking m = masking(1e-9);
  m.random = m.keep = 0;
  TokenStream s;
  s.append({10, 1, 20, 1, 1});
  Batch b = masked_batch(s, pieces_of(s, 10), kEnds, m, 1, 0);
  EXPECT_EQ(b.target_count, 1);
  EXPECT_EQ(values(b.ids), (std::vector<int32_t>{kFirst, 10, 1, kMask, 1, 1, kLast}));
  EXPECT_EQ(values(b.targets)[3], 20);
  // With whole_words, masks a whole word.
  m.whole_words = true;
  TokenStream words;
  words.append({10, 700, 11, 701, 702, 1});
  b = masked_batch(words, pieces_of(words, 10), {}, m, 1, 0);
  EXPECT_EQ(values(b.ids), (std::vector<int32_t>{10, 700, kMask, kMask, kMask, 1}));
  EXPECT_EQ(b.target_count, 3);
  // Masks nothing if there are only special tokens.
  TokenStream none;
  none.append({1, 1});
  b = masked_batch(none, pieces_of(none, 10), kEnds, m, 1, 0);
  EXPECT_EQ(b.target_count, 0);
  EXPECT_EQ(values(b.ids), (std::vector<int32_t>{kFirst, 1, 1, kLast}));
}

TEST(Masking, TwoTexts) {
  TokenStream stream;
  for (int d = 0; d < 40; ++d) {  // document d: 2 to 9 tokens of 100 d and on
    std::vector<int32_t> document(2 + d % 8);
    for (size_t t = 0; t < document.size(); ++t) document[t] = 100 * (d + 1) + static_cast<int32_t>(t);
    stream.append(document);
  }
  stream.append({5000});  // one token does not make a pair
  Masking m;
  m.next_sentence = true;
  m.rate = 0.3;
  m.mask = 7;
  m.keep = 1;  // so that ids show their origin
  m.random = 0;
  const std::vector<Piece> pieces = pieces_of(stream, 100);
  const Batch b = masked_batch(stream, pieces, {1, 2}, m, 3, 0);
  const auto ids = b.ids.values(), segments = b.segments.values(), follows = b.sequence_targets.values();
  ASSERT_EQ(follows.size(), 41u);
  EXPECT_EQ(follows[40], kIgnored);
  int others = 0;
  for (int s = 0; s < 40; ++s) {
    const int32_t begin = b.layout.offsets[s], end = b.layout.offsets[s + 1], first = (2 + s % 8 + 1) / 2;
    EXPECT_EQ(ids[begin], 1);
    EXPECT_EQ(ids[begin + 1 + first], 2);
    EXPECT_EQ(ids[end - 1], 2);
    for (int32_t r = begin; r < end; ++r) EXPECT_EQ(segments[r], r > begin + 1 + first ? 1 : 0);
    const int32_t second = ids[begin + first + 2];
    EXPECT_EQ(second == 100 * (s + 1) + first, follows[s] == kNextText) << s;
    others += follows[s] == kOtherText;
  }
  EXPECT_GT(others, 10);
  EXPECT_LT(others, 30);
}

}  // namespace
}  // namespace qkv::masking_test
