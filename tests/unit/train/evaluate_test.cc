// How an encoder with a head is judged: beside what it says of each example by itself.
#include "qkv/train/tasks/evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "qkv/infer/predict.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/text/tokenizer_testing.h"

namespace qkv::evaluate_test {
namespace {

class EvaluateEncoder : public ::testing::Test {
 protected:
  std::unique_ptr<Transformer> model(Output output, int64_t context) const {
    ModelSpec s = bert_spec(static_cast<int64_t>(t_.vocab_size()), context, 8, 1, 2);
    s.head_width = 0;
    s.unembedding_bias = false;
    s.output = output;
    s.pooler = output == Output::sequence_classes;
    if (output != Output::span) s.labels = {"x", "y", "z"};
    s.init_std = 0.5F;
    auto m = std::make_unique<Transformer>(s);
    m->parameters().draw(3, DType::f32);
    return m;
  }
  // The class with the highest score, and -log P of a gold one.
  static std::pair<int64_t, double> best(const Tensor& scores, int64_t row, int64_t gold) {
    const std::vector<double> p = probabilities_of(scores, row);
    return {std::max_element(p.begin(), p.end()) - p.begin(), -std::log(p[gold])};
  }
  text::Tokenizer t_ = testing::word_pieces({"one two three four"}, 200);
};

Example classified(const std::string& text, const std::string& label) {
  Example e;
  e.text.first = text;
  e.label = label;
  e.place = "a.tsv:" + label;
  return e;
}

TEST_F(EvaluateEncoder, Classes) {
  const auto made = model(Output::sequence_classes, 4);
  const Transformer& m = *made;
  const std::vector<Example> examples = {classified("one two", "x"), classified("three", "y"),
                                         classified("one two three four", "y")};
  const Evaluation e = evaluate(m, t_, examples, 5);
  double loss = 0;
  ConfusionMatrix expected(3);
  for (const Example& x : examples) {
    const int64_t gold = x.label == "x" ? 0 : 1;
    const auto [found, nats] = best(class_scores(m, {encode_text(x.text, t_, m.spec())})[0], 0, gold);
    expected.add(gold, found);
    loss += nats / 3;
  }
  EXPECT_NEAR(e.loss(), loss, 1e-5);
  EXPECT_EQ(e.confusion.count, expected.count);
  EXPECT_EQ(e.score("accuracy"), expected.accuracy());
  EXPECT_EQ(e.examples, 3);
  EXPECT_EQ(e.cut, 1);
  EXPECT_EQ(e.missed, 0);
  EXPECT_EQ(e.labels, m.spec().labels);
  EXPECT_EQ(e.unseen, 0);
  EXPECT_EQ(evaluate(m, t_, std::vector<Example>{}, 5).tokens, 0);
}

// Labels that the model was not taught are classes which it never finds.
TEST_F(EvaluateEncoder, UnseenClassesAreWrong) {
  const auto made = model(Output::sequence_classes, 4);
  const std::vector<Example> known = {classified("one two", "x"), classified("three", "y")};
  std::vector<Example> more = known;
  for (const char* label : {"w", "a", "w"}) more.push_back(classified("one", label));
  const Evaluation before = evaluate(*made, t_, known, 5), e = evaluate(*made, t_, more, 5);
  EXPECT_EQ(e.labels, (std::vector<std::string>{"x", "y", "z", "a", "w"}));
  EXPECT_EQ(e.unseen, 3);
  EXPECT_EQ(e.confusion.gold(3), 1);
  EXPECT_EQ(e.confusion.gold(4), 2);
  EXPECT_EQ(e.confusion.predicted(3) + e.confusion.predicted(4), 0);
  EXPECT_DOUBLE_EQ(e.score("accuracy"), before.score("accuracy") * 2 / 5);
  // The loss is that of the labels that it can say.
  EXPECT_EQ(e.tokens, 2);
  EXPECT_NEAR(e.loss(), before.loss(), 1e-6);
  // A column of texts is no column of labels.
  std::vector<Example> many;
  for (size_t i = 0; i <= kMostUnseenLabels; ++i) many.push_back(classified("one", std::to_string(i)));
  testing::expect_error([&] { evaluate(*made, t_, many, 5000); }, {"a.tsv:", "1000", "column"});
}

TEST_F(EvaluateEncoder, MistakesAreListed) {
  const auto made = model(Output::sequence_classes, 8);
  std::vector<Example> examples;
  for (const char* text : {"one", "two", "three four", "four one"})
    for (const char* label : {"x", "y", "w"}) examples.push_back(classified(text, label));
  const Evaluation e = evaluate(*made, t_, examples, 100, 20);
  EXPECT_EQ(e.mistaken, 12 - std::llround(12 * e.score("accuracy")));
  EXPECT_EQ(e.mistaken, std::ssize(e.mistakes));
  ASSERT_GE(e.mistakes.size(), 8u);
  EXPECT_TRUE(std::ranges::is_sorted(e.mistakes, std::ranges::greater(), &Mistake::score));
  for (const Mistake& m : e.mistakes) {
    Example x;
    x.text.first = m.text;
    const std::vector<double> p =
        probabilities_of(class_scores(*made, {encode_text(x.text, t_, made->spec())})[0], 0);
    const auto most = std::max_element(p.begin(), p.end());
    EXPECT_EQ(m.predicted, made->spec().labels[most - p.begin()]);
    EXPECT_NE(m.predicted, m.right);
    EXPECT_NEAR(m.score, *most, 1e-5);
    EXPECT_FALSE(m.word);
  }
  const Evaluation few = evaluate(*made, t_, examples, 100, 3);
  EXPECT_EQ(few.mistaken, e.mistaken);
  ASSERT_EQ(few.mistakes.size(), 3u);
  EXPECT_EQ(few.mistakes[2].score, e.mistakes[2].score);
}

TEST_F(EvaluateEncoder, MistakesOfTags) {
  const auto made = model(Output::token_classes, 4);  // two words between the ends
  Example e;
  e.text.first = "one two three";
  e.words = {"one", "two", "three"};
  e.tags = {"new", "new", "x"};
  const Evaluation found = evaluate(*made, t_, {e}, 100, 20);
  EXPECT_EQ(found.unseen, 2);
  EXPECT_EQ(found.labels.back(), "new");
  ASSERT_EQ(found.mistakes.size(), 3u);
  EXPECT_EQ(found.mistakes[2].word, "three");
  EXPECT_FALSE(found.mistakes[2].predicted);
  EXPECT_TRUE(found.mistakes[0].predicted);
}

// Chunks are judged where tags describe them.
TEST_F(EvaluateEncoder, ChunksOfTagsThatDescribeThem) {
  auto names = [&](const std::vector<std::string>& labels) {
    ModelSpec s = model(Output::token_classes, 16)->spec();
    s.labels = labels;
    Transformer m(s);
    m.parameters().draw(3, DType::f32);
    Example e;
    e.text.first = "one two";
    e.words = {"one", "two"};
    e.tags = {labels[0], labels[1]};
    std::vector<std::string> names;
    for (const auto& [name, value] : evaluate(m, t_, {e}, 100).scores) names.push_back(name);
    return names;
  };
  EXPECT_EQ(names({"B-X", "I-X", "O"}), (std::vector<std::string>{"accuracy", "macro_f1", "f1"}));
  EXPECT_EQ(names({"NOUN", "O", "VERB"}), (std::vector<std::string>{"accuracy", "macro_f1"}));
}

TEST_F(EvaluateEncoder, TagsThatAreCutAwayAreWrong) {
  const auto whole = model(Output::token_classes, 16), short_one = model(Output::token_classes, 4);
  Example e;
  e.text.first = "one two three four";
  e.words = {"one", "two", "three", "four"};
  e.tags = {"x", "y", "z", "y"};
  const Evaluation all = evaluate(*whole, t_, {e}, 100);
  EXPECT_EQ(all.tokens, 4);
  EXPECT_EQ(all.missed, 0);
  const Evaluation cut = evaluate(*short_one, t_, {e, e}, 100);
  EXPECT_EQ(cut.tokens, 4);  // two words of each between the ends
  EXPECT_EQ(cut.cut, 2);
  EXPECT_EQ(cut.missed, 4);
  EXPECT_EQ(cut.confusion.total(), 8);
  EXPECT_EQ(cut.confusion.missed, (std::vector<int64_t>{0, 2, 2}));
  EXPECT_LE(cut.score("accuracy"), 0.5);
  EXPECT_EQ(cut.chunks.gold, 8);
  EXPECT_EQ(cut.chunks.predicted, 4);
}

TEST_F(EvaluateEncoder, AnswersAsTexts) {
  const auto made = model(Output::span, 7);
  const Transformer& m = *made;
  const auto ask = [](const std::string& text, const std::string& answer) {
    Example e;
    e.text = {"one", text};
    e.label = answer;
    e.answer_begin = static_cast<int64_t>(text.find(answer));
    e.answer_end = e.answer_begin + std::ssize(answer);
    return e;
  };
  const std::string text = "two three four";
  const EncodedText encoded = encode_text({"one", text}, t_, m.spec());
  const std::string said = best_answer(class_scores(m, {encoded})[0], encoded, {"one", text}).text;
  const Evaluation e = evaluate(m, t_, {ask(text, said), ask(text, said)}, 100);
  EXPECT_EQ(e.score("exact_match"), 1);
  EXPECT_EQ(e.score("f1"), 1);
  EXPECT_EQ(e.tokens, 2);
  const std::string other = said == "two" ? "four" : "two";
  EXPECT_EQ(evaluate(m, t_, {ask(text, other)}, 100).score("exact_match"), 0);
  // Beyond the model's length.
  const Evaluation cut = evaluate(m, t_, {ask("two three two three four", "four"), ask(text, other)}, 100);
  EXPECT_EQ(cut.tokens, 1);
  EXPECT_EQ(cut.missed, 1);
  EXPECT_EQ(cut.cut, 1);
  EXPECT_EQ(cut.score("exact_match"), 0);
}

}  // namespace
}  // namespace qkv::evaluate_test
