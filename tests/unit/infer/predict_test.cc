// Predictions from the scores of an encoder.
#include "qkv/infer/predict.h"

#include <gtest/gtest.h>

#include <cmath>

#include "qkv/base/rng.h"
#include "qkv/ops/rows.h"

namespace qkv::predict_test {
namespace {

Tensor scores(int64_t rows, uint64_t seed) {
  std::vector<float> z;
  for (int64_t i = 0; i < 2 * rows; ++i)
    z.push_back(static_cast<float>(RandomStream{seed, 0, 0}.normal(static_cast<uint64_t>(i))));
  return Tensor::of({rows, 2}, z);
}

// Every valid span.
TokenSpan best_of_all(const Tensor& scores, const std::vector<bool>& may, int64_t longest) {
  TokenSpan best{0, 0, -1e30};
  const float* z = scores.data<float>();
  for (int64_t b = 0; b < scores.rows(); ++b)
    for (int64_t e = b + 1; e <= scores.rows(); ++e) {
      bool inside = e - b <= longest;
      for (int64_t t = b; t < e; ++t) inside = inside && may[t];
      const double score = double{z[2 * b]} + z[2 * (e - 1) + 1];
      if (inside && score > best.score) best = {b, e, score};
    }
  return best;
}

TEST(BestSpan, IsTheBestOfAll) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto first = static_cast<int64_t>(2 + seed % 4), rows = static_cast<int64_t>(first + 2 + seed % 7);
    const Tensor s = scores(rows, seed);
    std::vector<int32_t> types(rows, 0);
    std::vector<bool> all(rows, true), second(rows, false);
    for (int64_t t = first; t < rows; ++t) types[t] = 1, second[t] = t + 1 < rows;
    for (const int64_t longest : {1, 2, 3, 30}) {
      const TokenSpan of_second = best_span(s, types, longest), expected = best_of_all(s, second, longest);
      EXPECT_EQ(of_second.begin, expected.begin);
      EXPECT_EQ(of_second.end, expected.end);
      EXPECT_EQ(of_second.score, expected.score);
      const TokenSpan of_all = best_span(s, std::vector<int32_t>(rows, 0), longest),
                      expected_of_all = best_of_all(s, all, longest);
      EXPECT_EQ(of_all.begin, expected_of_all.begin);
      EXPECT_EQ(of_all.end, expected_of_all.end);
    }
  }
}

TEST(BestSpan, OfASeparatorAlone) {
  const TokenSpan s = best_span(scores(4, 1), std::vector<int32_t>{0, 0, 0, 1});
  EXPECT_EQ(s.begin, 3);
  EXPECT_EQ(s.end, 4);
}

// The bytes of the best span, with whole characters and without the space before.
TEST(BestAnswer, IsAPartOfTheText) {
  EncodedText e;  // [CLS] q [SEP] "a" " \u00e9" its last byte "b" [SEP]
  const TextPair text = {"question", "a \u00e9b"};
  const std::pair<size_t, size_t> offsets[] = {{0, 0}, {0, 8}, {0, 0}, {0, 1},
                                               {1, 3}, {3, 4}, {4, 5}, {0, 0}};
  for (size_t t = 0; t < 8; ++t) e.encoding.add(0, {offsets[t].first, offsets[t].second}, t >= 3);
  const auto answer = [&](int64_t first, int64_t last) {
    std::vector<float> z(16);
    z[2 * first] = z[2 * last + 1] = 5;
    return best_answer(Tensor::of({8, 2}, z), e, text);
  };
  EXPECT_EQ(answer(3, 3).text, "a");
  EXPECT_EQ(answer(4, 4).text, "\u00e9");
  EXPECT_EQ(answer(5, 5).text, "\u00e9");
  EXPECT_EQ(answer(5, 6).text, "\u00e9b");
  const Answer a = answer(4, 6);
  EXPECT_EQ(a.text, "\u00e9b");
  EXPECT_EQ(a.begin, 2u);
  EXPECT_EQ(a.end, 5u);
  EXPECT_EQ(a.score, 10);
  for (int32_t& type : e.encoding.type_ids) type = 0;
  EXPECT_EQ(answer(1, 1).text, "a \u00e9b");  // not beyond the text
}

TEST(Probabilities, AreASoftmax) {
  const Tensor z = Tensor::of({2, 3}, std::vector<float>{0, 0, 0, 1000, 1001, -1000});
  EXPECT_DOUBLE_EQ(probabilities_of(z, 0)[2], 1.0 / 3);
  EXPECT_NEAR(probabilities_of(z, 1)[1], 1 / (1 + std::exp(-1)), 1e-12);  // and no overflow
  EXPECT_EQ(probabilities_of(z, 1)[2], 0);
}

// Models with random weights: a text's results keep its place and do not depend on the other texts.
class PredictTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Transformer> model(Output output) {
    ModelSpec s = bert_spec(30, 16, 16, 2, 2);
    s.output = output;
    s.init_std = 0.3F;
    if (output != Output::tokens) s.head_width = 0, s.unembedding_bias = false;
    if (output == Output::sequence_classes || output == Output::token_classes) s.labels = {"a", "b", "c"};
    s.pooler = output == Output::sequence_classes;
    auto m = std::make_unique<Transformer>(s);
    m->parameters().draw(3, DType::f32);
    return m;
  }
  static EncodedText text(const std::vector<int32_t>& ids, size_t first_of_second = 100) {
    EncodedText t;
    for (size_t i = 0; i < ids.size(); ++i) t.encoding.add(ids[i], {i, i + 1}, i < first_of_second ? 0 : 1);
    return t;
  }
  const std::vector<EncodedText> texts_ = {text({2, 9, 8, 7, 3}, 3), text({2, 3}),
                                           text({2, 4, 20, 4, 21, 22, 3}), text({2, 4, 3, 11, 3}, 3),
                                           text({5})};
};

TEST_F(PredictTest, ClassScoresDoNotDependOnNeighbours) {
  for (const Output output : {Output::sequence_classes, Output::token_classes, Output::span}) {
    const auto m = model(output);
    for (const int64_t tokens : {1, 8, 4096}) {
      const std::vector<Tensor> together = class_scores(*m, texts_, tokens);
      ASSERT_EQ(together.size(), texts_.size());
      for (size_t i = 0; i < texts_.size(); ++i) {
        const Tensor alone = class_scores(*m, {texts_[i]})[0];
        ASSERT_EQ(together[i].shape(), alone.shape());
        EXPECT_EQ(alone.rows(),
                  output == Output::sequence_classes ? 1 : static_cast<int64_t>(texts_[i].encoding.size()));
        EXPECT_EQ(alone.width(), output == Output::span ? 2 : 3);
        for (int64_t k = 0; k < alone.count(); ++k)
          EXPECT_NEAR(together[i].data<float>()[k], alone.data<float>()[k], 2e-5)
              << name_of(output) << " " << i;
      }
    }
  }
}

TEST_F(PredictTest, VectorsHaveLengthOneAndFollowThePooling) {
  const auto m = model(Output::tokens);
  for (const Pooling pooling : {Pooling::first, Pooling::mean}) {
    m->set_pooling(pooling);
    const Tensor e = embed_texts(*m, texts_, 8);
    ASSERT_EQ(e.shape(), (Shape{5, 16}));
    for (int64_t i = 0; i < 5; ++i) {
      const ModelInput in = input_of(texts_, std::vector<int64_t>{i});
      const NoGrad guard;
      const Tensor hidden = m->hidden(in, {});
      std::vector<double> v(16);
      for (int64_t r = 0; r < (pooling == Pooling::first ? 1 : hidden.rows()); ++r)
        for (int64_t c = 0; c < 16; ++c) v[c] += hidden.data<float>()[r * 16 + c];
      double length = 0, own = 0;
      for (const double x : v) length += x * x;
      for (int64_t c = 0; c < 16; ++c) {
        const float x = e.data<float>()[i * 16 + c];
        EXPECT_NEAR(x, v[c] / std::sqrt(length), 2e-5);
        own += double{x} * x;
      }
      EXPECT_NEAR(own, 1, 1e-6);
    }
  }
  EXPECT_EQ(embed_texts(*m, {}).rows(), 0);
}

TEST_F(PredictTest, EveryMaskIsFilled) {
  constexpr int32_t kMask = 4;
  const auto m = model(Output::tokens);
  const auto found = fill_masks(*m, texts_, kMask, 3, 8);
  ASSERT_EQ(found.size(), texts_.size());
  for (size_t i = 0; i < texts_.size(); ++i) {
    const auto& ids = texts_[i].encoding.ids;
    ASSERT_EQ(std::ssize(found[i]), std::count(ids.begin(), ids.end(), kMask)) << i;
    const NoGrad guard;
    const Tensor logits =
        m->logits(m->hidden(input_of(texts_, std::vector<int64_t>{static_cast<int64_t>(i)}), {}));
    size_t k = 0;
    for (size_t r = 0; r < ids.size(); ++r) {
      if (ids[r] != kMask) continue;
      const std::vector<double> p = probabilities_of(logits, static_cast<int64_t>(r));
      std::vector<double> sorted = p;
      std::sort(sorted.rbegin(), sorted.rend());
      ASSERT_EQ(found[i][k].size(), 3u);
      for (size_t c = 0; c < 3; ++c) {
        EXPECT_NEAR(found[i][k][c].probability, sorted[c], 1e-5);
        EXPECT_NEAR(p[found[i][k][c].id], sorted[c], 1e-5);
      }
      ++k;
    }
  }
  EXPECT_EQ(fill_masks(*m, texts_, kMask, 1000)[2][0].size(), 30u);  // no more than the vocabulary has
  const auto known = fill_masks(*m, texts_, kMask, 1000, 4096, 4)[2][0];
  EXPECT_EQ(known.size(), 4u);  // a tokenizer knows fewer
  for (const Candidate& c : known) EXPECT_LT(c.id, 4);
}

// The logarithm of the mean of two softmaxes over tokens, one of them more certain than a float can
// express.
TEST(Spans, OfSeveralModelsAreMeansOfProbabilities) {
  const Tensor a = Tensor::of({3, 2}, std::vector<float>{1, 0, 2, 0, 3, 5}),
               b = Tensor::of({3, 2}, std::vector<float>{0, 0, 2000, 0, 0, 0});
  const Tensor both = span_scores({a, b});
  const double sum = std::exp(1) + std::exp(2) + std::exp(3), ends = 2 + std::exp(5);
  EXPECT_NEAR(both.data<float>()[0], std::log(std::exp(1) / sum / 2), 1e-5);
  EXPECT_NEAR(both.data<float>()[2], std::log((std::exp(2) / sum + 1) / 2), 1e-5);
  EXPECT_NEAR(both.data<float>()[4], std::log(std::exp(3) / sum / 2), 1e-5);
  EXPECT_NEAR(both.data<float>()[5], std::log((std::exp(5) / ends + 1.0 / 3) / 2), 1e-5);
  const Tensor sure = span_scores({b, b});
  EXPECT_NEAR(sure.data<float>()[0], -2000, 1e-2);  // not minus infinity, which would hide the best token
  EXPECT_EQ(span_scores({a}).data<float>()[5], 5);
  EXPECT_THROW(span_scores({a, Tensor::of({2, 2}, std::vector<float>(4))}), Error);
}

// A model that gives all texts the same vector has found none.
TEST(Vectors, ThatCannotBeToldApartAreNotFound) {
  const Tensor same = Tensor::of({3, 2}, std::vector<float>(6, 0.5F)),
               apart = Tensor::of({2, 2}, std::vector<float>{1, 0, 0, 1});
  EXPECT_EQ(contrastive_cross_entropy(same, same, 1, 1).found, 0);
  EXPECT_EQ(contrastive_cross_entropy(apart, apart, 1, 1).found, 2);
}

}  // namespace
}  // namespace qkv::predict_test
