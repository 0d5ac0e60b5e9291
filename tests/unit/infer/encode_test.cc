// From texts to what an encoder reads.
#include "qkv/infer/encode.h"

#include <gtest/gtest.h>

#include "qkv/base/rng.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/text/tokenizer_testing.h"

namespace qkv::encode_test {
namespace {

using testing::tokens_of;
using testing::word_pieces;

std::vector<int32_t> values(const Indices& t) {
  const auto v = t.values();
  return {v.begin(), v.end()};
}

TEST(EncodeText, TextsPairsAndTheContext) {
  const auto t = word_pieces({"one two three"});
  const ModelSpec spec = bert_spec(static_cast<int64_t>(t.vocab_size()), 6, 8, 1, 2);
  const EncodedText one = encode_text({"one two", ""}, t, spec), pair = encode_text({"one", "two"}, t, spec),
                    long_one = encode_text({"one two three one two", ""}, t, spec);
  EXPECT_EQ(tokens_of(t, one.encoding), (std::vector<std::string>{"[CLS]", "one", "two", "[SEP]"}));
  EXPECT_EQ(tokens_of(t, pair.encoding), (std::vector<std::string>{"[CLS]", "one", "[SEP]", "two", "[SEP]"}));
  EXPECT_FALSE(one.cut || pair.cut);
  EXPECT_TRUE(long_one.cut);
  EXPECT_EQ(long_one.encoding.size(), 6u);
  const ModelInput in = input_of({one, pair, long_one}, std::vector<int64_t>{1, 0});
  EXPECT_EQ(in.layout.offsets, (std::vector<int32_t>{0, 5, 9}));
  EXPECT_EQ(values(in.segments), (std::vector<int32_t>{0, 0, 0, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(values(in.ids)[1], values(in.ids)[6]);
  text::TrainerOptions bare;
  const text::Tokenizer bytes = text::train_bytes(bare);  // which puts nothing around texts
  testing::expect_error([&] { encode_text({"", ""}, bytes, spec); }, {"no token"});
}

// The smallest t whose bytes overlap the word's.
TEST(FirstTokens, AreThoseThatOverlapFirst) {
  const std::vector<std::string> known = {"tokens of words", "of token", "wordpiece"},
                                 words = {"tokens",
                                          "piece",
                                          "\xC3\x89"
                                          "COLE",
                                          "word-piece",
                                          "x",
                                          "of",
                                          "a,b",
                                          "\xE2\x80\x8B"};
  for (const size_t vocab : {40, 60, 1000}) {
    const auto t = word_pieces(known, vocab);
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const RandomStream random{seed, 0, 0};
      std::vector<std::string> sentence;
      std::string text;
      for (uint64_t i = 0; i < 1 + random.below(99, 6); ++i) {
        sentence.push_back(words[random.below(i, words.size())]);
        text += (i > 0 ? " " : "") + sentence.back();
      }
      text::Encoding e = t.encode(text);
      if (seed % 3 == 0 && e.size() > 5) {  // cut
        text::Encoding cut;
        for (size_t i = 0; i < 4; ++i) cut.add(e.ids[i], e.offsets[i], 0);
        cut.add(e.ids.back(), e.offsets.back(), 0);
        e = cut;
      }
      const std::vector<int64_t> found = first_tokens(e, sentence);
      ASSERT_EQ(found.size(), sentence.size());
      size_t begin = 0;
      for (size_t w = 0; w < sentence.size(); ++w) {
        const size_t end = begin + sentence[w].size();
        int64_t expected = -1;
        for (size_t i = e.size(); i-- > 0;)
          if (e.offsets[i].begin < end && e.offsets[i].end > begin) expected = static_cast<int64_t>(i);
        EXPECT_EQ(found[w], expected) << "word " << w << " of '" << text << "'";
        begin = end + 1;
      }
    }
  }
}

}  // namespace
}  // namespace qkv::encode_test
