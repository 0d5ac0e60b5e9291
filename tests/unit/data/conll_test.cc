// Tagged words in columns, good and bad.
#include "qkv/data/conll.h"

#include <gtest/gtest.h>

#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::conll_test {
namespace {

using Words = std::vector<std::string>;

class ConllTest : public ::testing::Test {
 protected:
  std::vector<TaggedSentence> read(const std::string& name, const std::string& text, int64_t word = 1,
                                   int64_t tag = 0) {
    return read_conll(dir_.write(name, text), word, tag);
  }
  void refuse(const std::string& name, const std::string& text, int64_t word, int64_t tag,
              std::initializer_list<std::string> parts) {
    testing::expect_error([&] { read(name, text, word, tag); }, parts);
  }
  testing::ScratchDir dir_;
};

TEST_F(ConllTest, SpacesAndTabs) {
  const auto s = read("a.txt", "EU NNP B-ORG\nrejects   VBZ\tO\r\n\n\n \t\nGerman\tJJ  B-MISC");
  ASSERT_EQ(s.size(), 2u);
  EXPECT_EQ(s[0].words, (Words{"EU", "rejects"}));
  EXPECT_EQ(s[0].tags, (Words{"B-ORG", "O"}));
  EXPECT_EQ(s[0].lines.front(), 1);
  EXPECT_EQ(s[1].words, (Words{"German"}));
  EXPECT_EQ(s[1].tags, (Words{"B-MISC"}));
  EXPECT_EQ(s[1].lines.front(), 6);
  const auto other = read("a.txt", "EU NNP B-ORG\n", 2, 1);
  EXPECT_EQ(other[0].words, Words{"NNP"});
  EXPECT_EQ(other[0].tags, Words{"EU"});
}

TEST_F(ConllTest, CommentsStandBeforeASentence) {
  const auto s = read("a.conll", "# id = 1\n# more\na X\n# Y\nb Z\n\n# id = 2\nc X\n");
  ASSERT_EQ(s.size(), 2u);
  EXPECT_EQ(s[0].words, (Words{"a", "#", "b"}));  // a number sign among words is one
  EXPECT_EQ(s[0].tags, (Words{"X", "Y", "Z"}));
  EXPECT_EQ(s[0].lines.front(), 3);
  EXPECT_EQ(s[1].lines.front(), 8);
}

TEST_F(ConllTest, Conllu) {
  const std::string text =
      "# text = I don't know\n"
      "1\tI\ti\tPRON\n"
      "2-3\tdon't\t_\t_\n"
      "2\tdo\tdo\tAUX\n"
      "3\tn't\tnot\tPART\n"
      "3.1\tempty\t_\t_\n"
      "4\tNew York\t\tPROPN\n"
      "\n"
      "1\tx-y\tx\tX\n";
  const auto s = read("a.conllu", text, 2, 4);
  ASSERT_EQ(s.size(), 2u);
  EXPECT_EQ(s[0].words, (Words{"I", "do", "n't", "New York"}));  // tabs divide, spaces do not
  EXPECT_EQ(s[0].tags, (Words{"PRON", "AUX", "PART", "PROPN"}));
  EXPECT_EQ(s[0].lines.front(), 2);
  EXPECT_EQ(s[1].words, Words{"x-y"});
  EXPECT_EQ(s[1].lines.front(), 9);
  // In another file "2-3" is a word.
  EXPECT_EQ(read("a.txt", "2-3 X\n")[0].words, Words{"2-3"});
}

TEST_F(ConllTest, SpacesAroundTagsAreNoPartOfThem) {
  Notes notes;
  const auto s =
      read_conll(dir_.write("a.conllu", "1\tthe\tthe\t DET \n2\tcat\tcat\tNOUN\n"), 2, 4, {}, &notes);
  EXPECT_EQ(s[0].tags, (Words{"DET", "NOUN"}));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("a.conllu: white space around 1 label was"), std::string::npos) << notes[0];
  // The format may be said, where the name does not.
  const std::string other = dir_.write("a.txt", "1\tNew York\ty\tPROPN\n");
  EXPECT_EQ(read_conll(other, 2, 4, {.format = "conllu"})[0].words, Words{"New York"});
}

TEST_F(ConllTest, ErrorsNameFileAndLine) {
  refuse("a.txt", "a X\nb\n\n", 1, 2, {"a.txt:2", "tag", "column 2", "1 columns"});
  refuse("b.txt", "\na X\n", 3, 1, {"b.txt:2", "word", "column 3"});
  refuse("c.conllu", "1\ta\tX\n2\t\tX\n", 2, 3, {"c.conllu:2", "word", "column 2"});
  refuse("d.conllu", "1\ta\t\n", 2, 0, {"d.conllu:1", "tag", "column 4"});
  refuse("e.txt", "\n# nothing\n\n", 1, 0, {"e.txt", "no sentence"});
  refuse("f.txt", "", 1, 0, {"f.txt"});
  // The last column is the same one everywhere.
  refuse("g.txt", "\na X\nb\n", 1, 0, {"g.txt:3", "2 columns as in line 2", "got 1"});
  refuse("h.txt", "a X\n\nb Y Z\n", 1, 0, {"h.txt:3", "2 columns", "got 3"});
}

}  // namespace
}  // namespace qkv::conll_test
