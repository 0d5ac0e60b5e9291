// Covers: qkv/text/aligned_text.cc, qkv/text/byte_alphabet.cc, qkv/text/normalizer.cc
#include "qkv/text/unicode.h"

#include <gtest/gtest.h>

#include <random>

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/aligned_text.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/normalizer.h"

namespace qkv::text::unicode_test {
namespace {

TEST(Unicode, InvalidBytesAreFoundWhereTheyStand) {
  EXPECT_EQ(find_invalid_utf8("plain ascii text"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("caf\xC3\xA9 \xF0\x9F\xA6\x99"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("0123456789\xFF"), 10u);
  EXPECT_EQ(find_invalid_utf8("\xC0\x80"), 0u);          // overlong
  EXPECT_EQ(find_invalid_utf8("a\xED\xA0\x80"), 1u);     // a surrogate
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("\xE4\xBD"), 0u);          // cut short
  EXPECT_THROW(check_utf8("ab\x80", "text"), Error);
}

TEST(Unicode, EveryCodePointSurvivesEncodingAndDecoding) {
  for (int32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string s;
    append_utf8(s, c);
    const Character back = character_at(s, 0);
    ASSERT_EQ(back.codepoint, c);
    ASSERT_EQ(back.length, s.size());
  }
}

TEST(Unicode, CompleteCharactersAreTakenFromPendingBytes) {
  std::string pending = "a\xE4\xBD";
  EXPECT_EQ(take_complete_utf8(pending), "a");
  EXPECT_EQ(pending, "\xE4\xBD");
  pending += "\xA0!";
  EXPECT_EQ(take_complete_utf8(pending), "\xE4\xBD\xA0!");
  EXPECT_TRUE(pending.empty());
  pending = "\xE4\xBDz\xFF";
  EXPECT_EQ(take_complete_utf8(pending), "\xEF\xBF\xBDz\xEF\xBF\xBD");
  EXPECT_TRUE(pending.empty());
}

TEST(Unicode, InvalidBytesAreReplaced) {
  EXPECT_EQ(to_valid_utf8(""), "");
  EXPECT_EQ(to_valid_utf8("a\xFF\xE4\xBD\xA0"), "a\xEF\xBF\xBD\xE4\xBD\xA0");
  EXPECT_EQ(to_valid_utf8("a\xE4\xBD"), "a\xEF\xBF\xBD");  // cut off
}

TEST(Unicode, LowercaseOfDottedCapitalIHasTwoCharacters) {
  std::string lower;
  append_lowercase(lower, 0x130);
  append_lowercase(lower, 0xC9);
  EXPECT_EQ(lower, "i\xCC\x87\xC3\xA9");
}

TEST(ByteAlphabet, SpellsAllBytesAndBack) {
  std::string bytes;
  for (int b = 0; b < 256; ++b) bytes.push_back(static_cast<char>(b));
  EXPECT_EQ(unspell_bytes(spell_bytes(bytes)), bytes);
  EXPECT_EQ(spell_bytes(" \n"), "\xC4\xA0\xC4\x8A");
  EXPECT_FALSE(unspell_bytes("a b").has_value());
}

// Strings that mix letters, marks, Hangul letters and compatibility forms.
std::string random_text(std::mt19937& rng) {
  static constexpr std::pair<int32_t, int32_t> kBlocks[] = {
      {0x20, 0x7E},       {0xC0, 0x24F},    {0x300, 0x36F},   {0x390, 0x3FF},   {0x9B0, 0x9E0},
      {0xB30, 0xB60},     {0xDC0, 0xDE0},   {0x1100, 0x11FF}, {0x1E00, 0x1FFF}, {0x3040, 0x30FF},
      {0x3130, 0x318F},   {0xAC00, 0xAC40}, {0xFB00, 0xFB4F}, {0xFF60, 0xFFDC}, {0x11130, 0x11135},
      {0x1D100, 0x1D170}, {0x2460, 0x24FF}};
  std::string text;
  for (int i = 0; i < 12; ++i) {
    const auto [low, high] = kBlocks[rng() % std::size(kBlocks)];
    append_utf8(text, low + static_cast<int32_t>(rng() % static_cast<uint32_t>(high - low + 1)));
  }
  return text;
}

TEST(Normalizer, SegmentwiseFormEqualsTheFormOfTheWhole) {
  static constexpr std::pair<const char*, NormalForm> kForms[] = {{"NFC", NormalForm::kNfc},
                                                                  {"NFD", NormalForm::kNfd},
                                                                  {"NFKC", NormalForm::kNfkc},
                                                                  {"NFKD", NormalForm::kNfkd}};
  std::mt19937 rng(7);
  for (const auto& [name, form] : kForms) {
    const Json json = {{"type", name}};
    const auto normalizer = parse_normalizer(JsonField(json, "normalizer"));
    for (int i = 0; i < 20000; ++i) {
      const std::string text = random_text(rng);
      ASSERT_EQ(normalizer->normalize(AlignedText(text, 0)).view(), to_normal_form(text, form))
          << name << text;
    }
  }
}

TEST(Normalizer, RemembersWhereBytesComeFrom) {
  const Json json = {{"type", "NFD"}};
  const auto normalizer = parse_normalizer(JsonField(json, "normalizer"));
  const AlignedText text = normalizer->normalize(AlignedText("x\xC3\xA9y", 10));
  EXPECT_EQ(text.view(), "xe\xCC\x81y");
  EXPECT_EQ(text.source_range({0, 1}), (Range{10, 11}));
  EXPECT_EQ(text.source_range({1, 2}), (Range{11, 13}));
  EXPECT_EQ(text.source_range({4, 5}), (Range{13, 14}));
}

}  // namespace
}  // namespace qkv::text::unicode_test
