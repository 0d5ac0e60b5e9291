// BLEU by hand, and as sacreBLEU computes it.
// Covers: qkv/metrics/bleu_tokenizer.cc
#include "qkv/metrics/bleu.h"

#include <gtest/gtest.h>

#include <cmath>

namespace qkv::bleu_test {
namespace {

using Words = std::vector<std::string>;

Bleu bleu(const Words& hypotheses, const Words& references) {
  return corpus_bleu(hypotheses, references);
}

Words words_13a(std::string_view line) {
  return bleu_words(line, BleuTokenizer::mteval_13a);
}

TEST(Bleu, WordsOfMteval13a) {
  EXPECT_EQ(
      words_13a("Hello, world! It's 3.5 of 1,000 (20-30)."),
      (Words{"Hello", ",", "world", "!", "It's", "3.5", "of", "1,000", "(", "20", "-", "30", ")", "."}));
  EXPECT_EQ(words_13a("e.g. a-b &quot;c&amp;d&quot; x..y"),
            (Words{"e", ".", "g", ".", "a-b", "\"", "c", "&", "d", "\"", "x", ".", ".", "y"}));
  EXPECT_EQ(words_13a(" für\u00a0die Straße, "), (Words{"für", "die", "Straße", ","}));
  EXPECT_EQ(words_13a(""), Words{});
}

// Expected words are from sacreBLEU 2.
TEST(Bleu, WordsOfTheOtherTokenizers) {
  constexpr std::string_view kWestern = "“Straße” kostet 5,50€ – wow… It's &amp; 20-30 1. ",
                             kChinese = " .5 我有3.5個“蘋果”,A-5 x—y 𠀀。";
  const auto words = [](std::string_view line, const char* name) {
    return bleu_words(line, bleu_tokenizer_from_name(name));
  };
  EXPECT_EQ(words(kWestern, "none"),
            (Words{"“Straße”", "kostet", "5,50€", "–", "wow…", "It's", "&amp;", "20-30", "1."}));
  EXPECT_EQ(words(kWestern, "13a"),
            (Words{"“Straße”", "kostet", "5,50€", "–", "wow…", "It's", "&", "20", "-", "30", "1", "."}));
  EXPECT_EQ(words(kWestern, "zh"), (Words{"“", "Straße", "”", "kostet", "5,50", "€", "–", "wow", "…", "It's",
                                          "&", "amp", ";", "20", "-", "30", "1."}));
  EXPECT_EQ(words(kWestern, "intl"), (Words{"“", "Straße", "”", "kostet", "5,50", "€", "–", "wow", "…", "It",
                                            "'", "s", "&", "amp", ";", "20-30", "1."}));
  EXPECT_EQ(words(kChinese, "none"), (Words{".5", "我有3.5個“蘋果”,A-5", "x—y", "𠀀。"}));
  EXPECT_EQ(words(kChinese, "13a"), (Words{".", "5", "我有3.5個“蘋果”", ",", "A-5", "x—y", "𠀀。"}));
  EXPECT_EQ(words(kChinese, "zh"), (Words{".5", "我", "有", "3.5", "個", "“", "蘋", "果", "”", ",", "A-5",
                                          "x", "—", "y", "𠀀", "。"}));
  EXPECT_EQ(words(kChinese, "intl"),
            (Words{".", "5", "我有3.5個", "“", "蘋果", "”", ",", "A", "-", "5", "x", "—", "y", "𠀀", "。"}));
  EXPECT_EQ(words("5 g.\u3000ß\x1C!", "char"), (Words{"5", "g", ".", "ß", "!"}));
  EXPECT_EQ(words(" \t", "none"), Words{});
}

// sacreBLEU 2.5 on the first references of its README.
TEST(Bleu, OfTheOtherTokenizers) {
  const Words hypotheses = {"The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."};
  const Words references = {"The dog bit the man.", "It was not unexpected.", "The man bit him first."};
  const std::pair<const char*, double> expected[] = {{"none", 44.428088917702794},
                                                     {"13a", 45.06750632106114},
                                                     {"char", 51.562779528311275},
                                                     {"zh", 45.06750632106114},
                                                     {"intl", 38.45246642636116}};
  for (const auto& [name, score] : expected)
    EXPECT_NEAR(corpus_bleu(hypotheses, references, bleu_tokenizer_from_name(name)).score, score, 1e-9)
        << name;
  const Words ours = {"我喜欢吃苹果。", "今天天气很好"}, theirs = {"我喜欢苹果。", "今天天气真好吗"};
  EXPECT_EQ(corpus_bleu(ours, theirs).score, 0);
  EXPECT_EQ(corpus_bleu(ours, theirs, BleuTokenizer::chinese).text(),
            "BLEU = 43.00 84.6/63.6/44.4/14.3 (BP = 1.000 ratio = 1.000 hyp_len = 13 ref_len = 13)");
  EXPECT_EQ(bleu_signature(BleuTokenizer::chinese), "nrefs:1|case:mixed|eff:no|tok:zh|smooth:exp");
}

TEST(Bleu, TheScriptChoosesTheTokenizer) {
  const auto chosen = [](const Words& references) {
    const ChosenTokenizer c = bleu_tokenizer_for(references);
    return name_of(c.tokenizer) + " " + c.script;
  };
  EXPECT_EQ(chosen({"The dog.", "Straße, это, 한국어 문장"}), "13a ");
  EXPECT_EQ(chosen({"我喜欢苹果。", "GPU 很好"}), "zh Chinese");
  EXPECT_EQ(chosen({"彼は東京大学の学生です。"}), "char Japanese");
  EXPECT_EQ(chosen({"これはペンです", "我喜欢"}), "char Japanese");
  EXPECT_EQ(chosen({"「の」是日本字，常见于日本的招牌上面，意思是的"}), "zh Chinese");
  EXPECT_EQ(chosen({"ฉันชอบแอปเปิล"}), "char Thai");
  EXPECT_EQ(chosen({"ខ្ញុំចូលចិត្តផ្លែប៉ោម"}), "char Khmer");
  EXPECT_EQ(chosen({"ຂ້ອຍມັກຫມາກໂປມ"}), "char Lao");
  EXPECT_EQ(chosen({"ကျွန်တော် ပန်းသီး ကြိုက်တယ်"}), "char Myanmar");
  EXPECT_EQ(chosen({"The word 東京 means the city of Tokyo."}), "13a ");
  EXPECT_EQ(chosen({"", "123 !"}), "13a ");
}

TEST(Bleu, OfOnePair) {
  const Bleu b = bleu({"a b c d e"}, {"a b c d f g"});
  EXPECT_NEAR(b.precisions[0], 80, 1e-9);
  EXPECT_NEAR(b.precisions[3], 50, 1e-9);
  EXPECT_NEAR(b.brevity_penalty, std::exp(-0.2), 1e-12);
  EXPECT_NEAR(b.score, 100 * std::exp(-0.2) * std::pow(0.8 * 0.75 * 2 / 3 * 0.5, 0.25), 1e-9);
}

// Counts are clipped by the reference's; each order without a match halves the next smoothing value.
TEST(Bleu, ClipsAndSmooths) {
  const Bleu b = bleu({"the the the the the the the"}, {"the cat is on the mat"});
  EXPECT_NEAR(b.score, std::pow(100 * 2.0 / 7 * 100 / 12 * 100 / 20 * 100 / 32, 0.25), 1e-9);
}

// A corpus's counts are summed before they are divided.
TEST(Bleu, OfACorpus) {
  const Bleu b = bleu({"a b c d", "x y"}, {"a b c d", "x z"});
  EXPECT_NEAR(b.precisions[0], 100 * 5.0 / 6, 1e-9);
  EXPECT_NEAR(b.precisions[1], 100 * 3.0 / 4, 1e-9);
  EXPECT_NEAR(b.score, 100 * std::pow(5.0 / 6 * 3 / 4, 0.25), 1e-9);
  EXPECT_EQ(b.hypothesis_length, 6);
}

TEST(Bleu, Extremes) {
  EXPECT_NEAR(bleu({"a b c d e"}, {"a b c d e"}).score, 100, 1e-9);
  EXPECT_EQ(bleu({"v w x y z"}, {"a b c d e"}).score, 0);
  EXPECT_EQ(bleu({""}, {"a b c d e"}).score, 0);
  EXPECT_EQ(bleu({"a b c"}, {"a b c"}).score, 0);  // no 4-gram at all
  EXPECT_EQ(bleu({}, {}).score, 0);
}

}  // namespace
}  // namespace qkv::bleu_test
