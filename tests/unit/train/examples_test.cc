// Examples from files, split and encoded.
#include "qkv/train/corpora/examples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"
#include "tests/unit/text/tokenizer_testing.h"

namespace qkv::examples_test {
namespace {

using testing::expect_error;
using Strings = std::vector<std::string>;

class ExamplesTest : public ::testing::Test {
 protected:
  std::vector<Example> read(const std::string& name, const std::string& text, Output output) {
    return read_examples({dir_.write(name, text)}, data_, output);
  }
  ModelSpec spec(const text::Tokenizer& t, Output output, const Strings& labels, int64_t context = 16) {
    ModelSpec s = bert_spec(static_cast<int64_t>(t.vocab_size()), context, 8, 1, 2);
    s.output = output;
    s.labels = labels;
    return s;
  }
  testing::ScratchDir dir_;
  DataConfig data_;
};

std::vector<Example> numbered(int count) {
  std::vector<Example> out(count);
  for (int i = 0; i < count; ++i) out[i].text.first = std::to_string(i);
  return out;
}

Strings names(const std::vector<Example>& examples) {
  Strings out;
  for (const Example& e : examples) out.push_back(e.text.first);
  return out;
}

TEST_F(ExamplesTest, Classes) {
  const auto one = read("a.tsv", "label\ttext\nx\tone two\ny\t\nx\tthree\n", Output::sequence_classes);
  ASSERT_EQ(one.size(), 2u);  // an empty text does not count
  EXPECT_EQ(names(one), (Strings{"one two", "three"}));
  EXPECT_EQ(one[1].label, "x");
  EXPECT_TRUE(one[1].place.ends_with("a.tsv:4")) << one[1].place;
  EXPECT_TRUE(one[0].text.second.empty());
  data_.text_column = "premise";
  data_.second_column = "hypothesis";
  data_.label_column = "gold";
  data_.columns = {"gold", "premise", "hypothesis"};
  const auto pairs = read("b.tsv", "no\tp\th\nyes\tq\t\n", Output::sequence_classes);
  EXPECT_EQ(pairs[0].text.second, "h");
  EXPECT_EQ(pairs[1].label, "yes");
  EXPECT_EQ(texts_of(pairs), (Strings{"p", "h", "q"}));
}

TEST_F(ExamplesTest, Tags) {
  const auto conll = read("a.txt", "# c\nthe DT O\ncat NN B-X\n\nruns VB O\n", Output::token_classes);
  ASSERT_EQ(conll.size(), 2u);
  EXPECT_EQ(conll[0].text.first, "the cat");
  EXPECT_EQ(conll[0].tags, (Strings{"O", "B-X"}));  // the last column
  EXPECT_TRUE(conll[1].place.ends_with("a.txt:5")) << conll[1].place;
  const auto conllu = read("a.conllu", "1\tthe\tthe\tDET\tDT\n", Output::token_classes);
  EXPECT_EQ(conllu[0].words, Strings{"the"});
  EXPECT_EQ(conllu[0].tags, Strings{"DET"});
  data_.word_column = 3;
  data_.tag_column = 1;
  EXPECT_EQ(read("a.txt", "T l w x\n", Output::token_classes)[0].words, Strings{"w"});
}

TEST_F(ExamplesTest, Answers) {
  data_.text_column = "question";
  data_.second_column = "context";
  data_.label_column = "answer";
  const auto e =
      read("a.csv", "question,context,answer\nq,the red fox,red\nq,a red  fox ran,\" fox \"\n", Output::span);
  EXPECT_EQ(e[0].answer_begin, 4);
  EXPECT_EQ(e[0].answer_end, 7);
  EXPECT_EQ(e[1].answer_begin, 7);  // without the spaces around it
  EXPECT_EQ(e[1].answer_end, 10);
}

TEST_F(ExamplesTest, RowsWithoutTextAreFound) {
  ReadExamples found;
  const std::string path = dir_.write("a.csv", "text,label\na,x\n,y\nb,x\n,x\n");
  const auto examples = read_examples({path}, data_, Output::sequence_classes, &found);
  EXPECT_EQ(names(examples), (Strings{"a", "b"}));
  ASSERT_EQ(found.without_text.size(), 2u);
  EXPECT_EQ(found.without_text[0].label, "y");
  EXPECT_TRUE(found.without_text[0].place.ends_with("a.csv:3")) << found.without_text[0].place;
  expect_error([&] { read("b.csv", "text,label\n,x\n", Output::sequence_classes); },
               {"b.csv", "no example", "1 row without text"});
}

TEST_F(ExamplesTest, LabelsAreTrimmed) {
  ReadExamples found;
  const std::string path = dir_.write("a.tsv", "text\tlabel\na\tpos \nb\t pos\nc\tpos\nd\tno way\n");
  const auto examples = read_examples({path}, data_, Output::sequence_classes, &found);
  EXPECT_EQ(labels_of(examples, Output::sequence_classes), (Strings{"no way", "pos"}));
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_NE(found.notes[0].find("white space around 2 labels"), std::string::npos) << found.notes[0];
  expect_error([&] { read("b.tsv", "text\tlabel\na\t \n", Output::sequence_classes); },
               {"b.tsv:2", "'label'", "empty"});
}

TEST_F(ExamplesTest, ListsOfWordsAndTags) {
  const auto read_lists = [&](const std::string& text) {
    return read("a.jsonl", text, Output::token_classes);
  };
  const auto e = read_lists(R"({"id": 1, "tokens": ["the", "cat"], "ner_tags": ["O", "B "]})"
                            "\n\n"
                            R"({"tokens": ["runs"], "ner_tags": [3], "tags": ["x"]})");
  ASSERT_EQ(e.size(), 2u);
  EXPECT_EQ(e[0].words, (Strings{"the", "cat"}));
  EXPECT_EQ(e[0].tags, (Strings{"O", "B"}));
  EXPECT_EQ(e[0].text.first, "the cat");
  EXPECT_EQ(e[1].tags, Strings{"3"});
  EXPECT_TRUE(e[1].place.ends_with("a.jsonl:3")) << e[1].place;
  EXPECT_EQ(read_lists(R"({"words": ["a"], "tags": ["X"]})")[0].tags, Strings{"X"});
  const auto refuse = [&](const std::string& line, std::initializer_list<std::string> says) {
    expect_error([&] { read_lists(line); }, says);
  };
  refuse(R"({"tokens": ["a", "b"], "tags": ["X"]})", {"a.jsonl:1", "2 words", "1 tags"});
  refuse(R"({"tokens": ["a"], "marks": ["X"]})", {"a.jsonl:1", "ner_tags", "marks, tokens", "label_column"});
  refuse(R"({"tokens": "a b", "tags": ["X"]})", {"a.jsonl:1", "tokens", "list"});
  refuse(R"({"tokens": ["a", ""], "tags": ["X", "Y"]})", {"a.jsonl:1", "word 2 is empty"});
  refuse("[1]", {"a.jsonl:1", "object"});
  data_.text_column = "t";
  data_.label_column = "marks";
  EXPECT_EQ(read_lists(R"({"t": ["a"], "marks": ["X"], "tags": ["Y"], "tokens": ["b"]})")[0].words,
            Strings{"a"});
  EXPECT_EQ(read_lists(R"({"t": ["a"], "marks": ["X"], "tags": ["Y"]})")[0].tags, Strings{"X"});
}

TEST_F(ExamplesTest, BadFilesAreRefusedByPlace) {
  const auto refuse = [&](const std::string& name, const std::string& text, Output output,
                          std::initializer_list<std::string> parts) {
    expect_error([&] { read(name, text, output); }, parts);
  };
  refuse("a.tsv", "label\ttext\nx\ta\n\tb\n", Output::sequence_classes, {"a.tsv:3", "'label'", "empty"});
  refuse("b.tsv", "labl\ttext\nx\ta\n", Output::sequence_classes, {"b.tsv", "'label'", "did you mean labl?"});
  refuse("c.tsv", "label\ttext\n", Output::sequence_classes, {"c.tsv", "no example"});
  data_.text_column = "question";
  data_.second_column = "context";
  data_.label_column = "answer";
  refuse("d.tsv", "question\tcontext\tanswer\nq\tabc\tb\nq\tabc\tx\n", Output::span,
         {"d.tsv:3", "'x'", "'context'"});
  refuse("e.tsv", "question\tcontext\tanswer\nq\ta b\t \n", Output::span, {"e.tsv:2", "'answer'", "empty"});
}

TEST_F(ExamplesTest, SplitsAreSeededAndDisjoint) {
  for (const double fraction : {0.0, 0.1, 0.25, 0.9}) {
    std::vector<Example> kept = numbered(50), again = numbered(50), other = numbered(50);
    const Strings taken = names(split_off(kept, fraction, 7));
    EXPECT_EQ(std::ssize(taken), std::llround(50 * fraction));
    EXPECT_EQ(names(split_off(again, fraction, 7)), taken);
    EXPECT_EQ(names(again), names(kept));
    if (fraction > 0) {
      EXPECT_NE(names(split_off(other, fraction, 8)), taken);
      EXPECT_NE(taken.back(), std::to_string(taken.size() - 1)) << "the first ones";
      EXPECT_NE(taken.front(), std::to_string(50 - taken.size())) << "the last ones";
    }
    // Together the parts have all examples, each part in order.
    std::vector<int> all;
    for (const Strings& part : {taken, names(kept)}) {
      std::vector<int> numbers;
      for (const std::string& s : part) numbers.push_back(std::stoi(s));
      EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
      all.insert(all.end(), numbers.begin(), numbers.end());
    }
    std::sort(all.begin(), all.end());
    for (int i = 0; i < 50; ++i) EXPECT_EQ(all[i], i);
  }
}

// Every example is in one fold; equal texts are in the same fold, and each fold has its share of every
// label.
TEST_F(ExamplesTest, FoldsDivideTheExamples) {
  std::vector<Example> all = numbered(70);
  for (int i = 0; i < 70; ++i) all[i].label = i % 7 == 0 ? "rare" : "frequent";
  for (int i = 0; i < 10; ++i) all[60 + i] = all[i];  // duplicates
  std::map<std::string, int> seen;
  Strings first;
  for (int64_t fold = 1; fold <= 5; ++fold) {
    std::vector<Example> kept = all;
    const std::vector<Example> taken = take_fold(kept, fold, 5, 3);
    if (fold == 1) first = names(taken);
    EXPECT_EQ(taken.size() + kept.size(), 70u);
    EXPECT_NEAR(static_cast<double>(taken.size()), 14, 4);
    int rare = 0;
    std::set<std::string> texts, rare_texts;
    for (const Example& e : taken) {
      ++seen[e.text.first];
      texts.insert(e.text.first);
      if (e.label == "rare") rare_texts.insert(e.text.first);
    }
    EXPECT_EQ(texts.size(), 12u);
    rare = static_cast<int>(rare_texts.size());
    EXPECT_TRUE(rare == 1 || rare == 2) << rare;  // there are nine
    for (const Example& e : kept) EXPECT_FALSE(texts.contains(e.text.first)) << e.text.first;
  }
  EXPECT_EQ(seen.size(), 60u);
  for (const auto& [text, count] : seen) EXPECT_EQ(count, std::stoi(text) < 10 ? 2 : 1) << text;
  std::vector<Example> again = all, other = all;
  EXPECT_EQ(names(take_fold(again, 1, 5, 3)), first);
  EXPECT_NE(names(take_fold(other, 1, 5, 4)), first);
  expect_error([&] { take_fold(all, 1, 61, 3); }, {"60", "61"});
}

TEST_F(ExamplesTest, EqualTextsStayTogether) {
  std::vector<Example> all(90);
  for (size_t i = 0; i < all.size(); ++i) all[i].text = {"t" + std::to_string(i % 30), i % 2 == 0 ? "" : "x"};
  std::vector<Example> kept = all;
  const std::vector<Example> taken = split_off(kept, 0.3, 7);
  EXPECT_EQ(taken.size() + kept.size(), 90u);
  EXPECT_GE(taken.size(), 27u);
  EXPECT_LE(taken.size(), 29u);
  for (const Example& a : taken)
    for (const Example& b : kept)
      EXPECT_FALSE(a.text.first == b.text.first && a.text.second == b.text.second);
  EXPECT_EQ(deduplicate(all), 60);
  ASSERT_EQ(all.size(), 30u);
  for (size_t i = 0; i < 30; ++i) EXPECT_EQ(all[i].text.first, "t" + std::to_string(i));
}

TEST_F(ExamplesTest, Labels) {
  std::vector<Example> e(4);
  const auto labels = [&](const Strings& its) {
    for (size_t i = 0; i < 4; ++i) e[i].label = its[i];
    return labels_of(e, Output::sequence_classes);
  };
  EXPECT_EQ(labels({"b", "a", "b", "B"}), (Strings{"B", "a", "b"}));
  EXPECT_EQ(labels({"10", "9", "-1", "100"}), (Strings{"-1", "9", "10", "100"}));
  EXPECT_EQ(labels({"10", "9", "x", "100"}), (Strings{"10", "100", "9", "x"}));
  e[0].tags = {"O", "B"};
  e[2].tags = {"O"};
  EXPECT_EQ(labels_of(e, Output::token_classes), (Strings{"B", "O"}));
}

TEST_F(ExamplesTest, ClassesAsAModelReadsThem) {
  const auto t = testing::word_pieces({"one two three"});
  const auto e =
      read("a.tsv", "label\ttext\ny\tone two\nx\tone two three one two three\n", Output::sequence_classes);
  const EncodedExamples out = encode_examples(e, t, spec(t, Output::sequence_classes, {"x", "y"}, 6));
  EXPECT_EQ(out.stream.targets, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(out.stream.lengths(), (std::vector<int64_t>{4, 6}));
  EXPECT_EQ(out.cut, 1);
  expect_error(
      [&] {
        encode_examples(e, t, spec(t, Output::sequence_classes, {"yy", "x", "no"}));
      },
      {"a.tsv:2", "'y'", "none of the 3"});
}

TEST_F(ExamplesTest, TagsAsAModelReadsThem) {
  const auto t = testing::word_pieces({"abc"}, 12);  // letters only
  const auto e = read("a.txt", "ab X\nc Y\nabc X\n", Output::token_classes);
  const EncodedExamples out = encode_examples(e, t, spec(t, Output::token_classes, {"X", "Y"}));
  // [CLS] a ##b c a ##b ##c [SEP], or larger pieces: the first of each word has its tag.
  std::vector<int32_t> tags;
  for (const int32_t x : out.stream.targets)
    if (x != kIgnored) tags.push_back(x);
  EXPECT_EQ(tags, (std::vector<int32_t>{0, 1, 0}));
  EXPECT_EQ(out.stream.targets[0], kIgnored);
  EXPECT_EQ(out.stream.targets[1], 0);
  EXPECT_EQ(out.stream.targets.back(), kIgnored);
  const EncodedExamples cut = encode_examples(e, t, spec(t, Output::token_classes, {"X", "Y"}, 3));
  EXPECT_EQ(cut.stream.targets, (std::vector<int32_t>{kIgnored, 0, kIgnored}));
  EXPECT_EQ(cut.cut, 1);
  const EncodedExamples none = encode_examples(e, t, spec(t, Output::token_classes, {"X", "Y"}, 2));
  EXPECT_EQ(none.stream.size(), 0);
  EXPECT_EQ(none.lost, 1);
  expect_error([&] { encode_examples(e, t, spec(t, Output::token_classes, {"X"})); }, {"a.txt:1", "'Y'"});
}

TEST_F(ExamplesTest, AnswersAsAModelReadsThem) {
  const auto t = testing::word_pieces({"who the red fox ran away"});
  data_.text_column = "question";
  data_.second_column = "context";
  data_.label_column = "answer";
  const auto e = read("a.tsv",
                      "question\tcontext\tanswer\n"
                      "who\tthe red fox ran away\tred fox\n"
                      "who the red fox\tran\tran\n"
                      "who\tthe red fox ran away\taway\n"
                      "who\tthe red fox\tx\n"
                      "who\tthe red fox\tred \n",
                      Output::span);
  const EncodedExamples out = encode_examples(e, t, spec(t, Output::span, {}, 7));
  // [CLS] who [SEP] the red fox [SEP] and [CLS] who the red fox -> cut [SEP] ran [SEP].
  const auto targets = [&](int64_t d) {
    const auto s = out.stream.targets_of(d);
    return std::pair(s[0], s[1]);
  };
  EXPECT_EQ(targets(0), std::pair(4, 5));
  EXPECT_EQ(targets(1), std::pair(5, 5));
  EXPECT_EQ(targets(2), std::pair(5, 5));  // a part of a token
  EXPECT_EQ(targets(3), std::pair(4, 4));  // a space after it
  EXPECT_EQ(out.stream.size(), 4);         // "away" was cut away
  EXPECT_EQ(out.lost, 1);
  EXPECT_EQ(out.cut, 3);
  const auto first = out.stream.tokens.starts();
  EXPECT_EQ(out.stream.segments[first[0] + 2], 0);
  EXPECT_EQ(out.stream.segments[first[0] + 3], 1);
}

}  // namespace
}  // namespace qkv::examples_test
