// The pre-tokenizer UnicodeScripts: its table against PCRE2's, its rule against the texts of Hugging Face's
// own tests.
#include "qkv/text/unicode_scripts.h"

#include <gtest/gtest.h>

#include <set>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/pre_tokenizer.h"
#include "qkv/text/regex.h"
#include "qkv/text/unicode.h"

namespace qkv::text::unicode_scripts_test {
namespace {

using Strings = std::vector<std::string>;

std::string utf8(int32_t codepoint) {
  std::string out;
  append_utf8(out, codepoint);
  return out;
}

// Name of a script in PCRE2, and one of its characters.
struct Named {
  const char* script;
  int32_t sample;
};
const Named kNamed[] = {
    {"Common", '0'},      {"Latin", 'a'},       {"Greek", 0x3B1},      {"Cyrillic", 0x430},
    {"Armenian", 0x561},  {"Hebrew", 0x5D0},    {"Arabic", 0x628},     {"Devanagari", 0x905},
    {"Bengali", 0x985},   {"Thai", 0xE01},      {"Georgian", 0x10D0},  {"Hangul", 0xAC00},
    {"Ethiopic", 0x1200}, {"Cherokee", 0x13A0}, {"Mongolian", 0x1820}, {"Inherited", 0x300},
    {"Han", 0x4E00},      {"Bopomofo", 0x3105}, {"Yi", 0xA000},        {"Linear_B", 0x10000},
    {"Tangut", 0x17000},  {"Adlam", 0x1E900},   {"Osage", 0x104B0},    {"SignWriting", 0x1D800}};
// Characters that versions after 9 moved to another script, and a kana mark; kana are Han here.
const std::set<int32_t> kMoved = {' ', 0x589, 0x61C, 0x953, 0x954, 0x30FC};

TEST(UnicodeScripts, TheTableIsThatOfUnicode) {
  std::set<uint8_t> numbers;
  for (const Named& n : kNamed) {
    const uint8_t number = script_of(n.sample);
    EXPECT_NE(number, kNoScript) << n.script;
    EXPECT_TRUE(numbers.insert(number).second) << n.script;
    const std::string kana = std::string(n.script) == "Han" ? R"(\p{sc:Hiragana}\p{sc:Katakana})" : "";
    const Regex regex("[" + kana + "\\p{sc:" + n.script + "}]");
    std::string of_it, of_others;
    int64_t count = 0;
    for (int32_t c = 0; c < 0x110000; ++c) {
      if (kMoved.contains(c) || (c >= 0xD800 && c < 0xE000)) continue;
      const uint8_t script = script_of(c);
      if (script == number) of_it += utf8(c), ++count;
      if (script != number && script != kNoScript) of_others += utf8(c);
    }
    EXPECT_EQ(static_cast<int64_t>(regex.find_all(of_it).size()), count) << n.script;
    EXPECT_TRUE(regex.find_all(of_others).empty()) << n.script;
  }
}

TEST(UnicodeScripts, WhatIsHanAndWhatHasNone) {
  const uint8_t han = script_of(0x4EAC);
  for (const int32_t c : {0x592A, 0x3044, 0x30B0, 0x30FC}) EXPECT_EQ(script_of(c), han) << c;
  for (const int32_t c : {int32_t{' '}, 0x378, 0x1F929, 0x10FFFF, -1})
    EXPECT_EQ(script_of(c), kNoScript) << c;
  EXPECT_EQ(script_of('$'), script_of(0x2014));
  EXPECT_EQ(script_of(0), script_of('-'));
  EXPECT_NE(script_of(0xE01EF), kNoScript);  // the last range
  EXPECT_EQ(script_of(0x589), script_of(':'));
  EXPECT_EQ(script_of(0x61C), script_of(':'));
  EXPECT_EQ(script_of(0x953), script_of(0x905));
}

// The pieces, and their source ranges.
Strings pieces(const std::string& text, const Json& stage = {{"type", "UnicodeScripts"}}) {
  PieceList list(AlignedText(text, 0));
  const auto splits = parse_pre_tokenizer(JsonField(stage, "pre_tokenizer"));
  splits->split(list);
  EXPECT_EQ(Json::parse(splits->to_json().dump()), stage);
  Strings out;
  for (size_t i = 0; i < list.pieces.size(); ++i) out.emplace_back(list.piece(i));
  return out;
}

TEST(UnicodeScripts, CutsWhereTheScriptChanges) {
  EXPECT_EQ(pieces("どこで生れ。Yes"), (Strings{"どこで生れ", "。", "Yes"}));
  EXPECT_EQ(pieces("Apples are りんご 林檎"), (Strings{"Apples are ", "りんご 林檎"}));
  EXPECT_EQ(pieces("a1 b"), (Strings{"a", "1 ", "b"}));
  EXPECT_EQ(pieces("コーヒーa"), (Strings{"コーヒー", "a"}));
  EXPECT_EQ(pieces("e\xCC\x81"), (Strings{"e", "\xCC\x81"}));  // marks do not join the script before
  EXPECT_EQ(pieces("a\xF0\x9F\xA4\xA9"
                   "b"),
            (Strings{"a\xF0\x9F\xA4\xA9"
                     "b"}));  // not in Unicode 9
  EXPECT_EQ(pieces("a\tb"), (Strings{"a", "\t", "b"}));
}

TEST(UnicodeScripts, SpacesInFrontGo) {
  EXPECT_EQ(pieces("  a b "), (Strings{"a b "}));
  EXPECT_EQ(pieces("   "), Strings());
  EXPECT_EQ(pieces(""), Strings());
}

TEST(UnicodeScripts, CutsEachPieceOnItsOwn) {
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}},
             scripts = {{"type", "UnicodeScripts"}};
  const Json both = {{"type", "Sequence"}, {"pretokenizers", {digits, scripts}}};
  EXPECT_EQ(pieces("ab1 c", both), (Strings{"ab", "1", "c"}));  // a space begins its piece
  const Json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Json spelt = {{"type", "Sequence"}, {"pretokenizers", {bytes, scripts}}};
  EXPECT_EQ(pieces("é", spelt), (Strings{"Ã", "©"}));  // Latin, common
}

}  // namespace
}  // namespace qkv::text::unicode_scripts_test
