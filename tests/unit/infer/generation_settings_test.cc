// The settings of generation as their readers see them.
#include "qkv/infer/generation_settings.h"

#include <gtest/gtest.h>

#include "qkv/base/json_value.h"
#include "tests/unit/expect_error.h"

namespace qkv::generation_settings_test {
namespace {

using Acts = GenerationField::Acts;
using Ids = std::vector<int32_t>;

// A value that asks for something, as text and as JSON.
std::pair<std::string, std::string> sample_of(const GenerationField& field) {
  GenerationSettings s;
  switch (field.member(s).index()) {
    case 0:
      return {"3", "3"};
    case 1:
      return {"7", "7"};
    case 2:
      return {"0.5", "0.5"};
    case 3:
      return {"true", "true"};
    case 4:
      return {"never", "\"never\""};
    case 5:
      return {"6", "6"};
    case 6:
      return {"5 2", "[5, 2]"};
    default:
      return {"5 2|8", "[[5, 2], [8]]"};
  }
}

TEST(GenerationSettings, EachFieldIsReadFromTextAndFromJsonAndCopied) {
  std::set<std::string> keys, options;
  for (const GenerationField& field : generation_fields()) {
    SCOPED_TRACE(field.key);
    EXPECT_TRUE(keys.insert(field.key).second);
    EXPECT_TRUE(*field.option == '\0' || options.insert(field.option).second);
    EXPECT_EQ(find_generation_field(field.key), &field);
    const auto [text, json] = sample_of(field);
    GenerationSettings by_text, by_json, copied;
    set_from_text(field, text, by_text);
    const Json value = parse_json(json, "file");
    set_from_json(field, JsonField(value, "file: key"), by_json);
    copy_setting(field, by_text, copied);
    EXPECT_FALSE(is_neutral(field, by_text));
    for (const GenerationField& other : generation_fields()) {
      const std::string want = &other == &field ? text : text_of(other, GenerationSettings());
      for (const GenerationSettings& read : {by_text, by_json, copied}) EXPECT_EQ(text_of(other, read), want);
    }
  }
}

TEST(GenerationSettings, FieldsAskForNothingByDefault) {
  const GenerationSettings fresh;
  for (const GenerationField& field : generation_fields()) {
    if (field.acts == Acts::always || std::string_view(field.key) == "seed") continue;
    EXPECT_TRUE(is_neutral(field, fresh)) << field.key;
  }
}

TEST(GenerationSettings, WhatNoFieldTakesIsRefused) {
  using KeysAndValues = std::vector<std::pair<const char*, const char*>>;
  const KeysAndValues texts = {{"top_k", "-1"},
                               {"top_k", "2.5"},
                               {"top_k", ""},
                               {"num_beams", "1025"},
                               {"patience", "0"},
                               {"patience", "nan"},
                               {"early_stopping", "maybe"},
                               {"seed", "-1"},
                               {"eos_token_id", "x"},
                               {"bad_words_ids", "|"},
                               {"bad_words_ids", "3|x"},
                               {"eos_token_id", ""},
                               {"forced_eos_token_id", "-2"},
                               {"prefix_bias_beta", "1"},
                               {"output_attentions", "1"}};
  for (const auto& c : texts) {
    GenerationSettings s;
    testing::expect_error([&] { set_from_text(*find_generation_field(c.first), c.second, s); },
                          {c.first, "expected"});
  }
  const KeysAndValues json = {{"top_k", "2.5"},
                              {"num_beams", "0"},
                              {"early_stopping", "1"},
                              {"forced_eos_token_id", "[1, 2]"},
                              {"bad_words_ids", "[[]]"},
                              {"coverage_penalty", "-1"},
                              {"return_alternatives", "3"}};
  for (const auto& c : json) {
    GenerationSettings s;
    const Json value = parse_json(c.second, "file");
    testing::expect_error(
        [&] { set_from_json(*find_generation_field(c.first), JsonField(value, "file: key"), s); },
        {"file: key"});
  }
  GenerationSettings s;
  for (const char* list : {"top_k=3,top_k=3", "top_k", "top_kk=3"})
    testing::expect_error([&] { set_from_list(list, s); }, {"top_k"});
  EXPECT_EQ(set_from_list("num_beams=3,bad_words_ids=4 5|6", s),
            (std::set<std::string>{"num_beams", "bad_words_ids"}));
  EXPECT_EQ(s.search_options().beams, 3);
  EXPECT_EQ(s.search_options().rules.suppressed, (std::vector<Ids>{{4, 5}, {6}}));
}

TEST(GenerationSettings, SettingsThatCannotActAreNamed) {
  const auto refuse = [](const char* list, bool drawing, bool searching,
                         std::initializer_list<std::string> says) {
    GenerationSettings s;
    const auto given = set_from_list(list, s);
    testing::expect_error(
        [&] {
          check_acting(s, given, drawing, searching,
                       [](const GenerationField& f, bool) { return std::string(f.key); });
        },
        says);
  };
  for (const GenerationField& field : generation_fields()) {
    const std::string item = fmt::format("{}={}", field.key, sample_of(field).first);
    if (field.acts == Acts::searching) refuse(item.c_str(), true, false, {field.key, "no effect"});
    if (field.acts == Acts::drawing) refuse(item.c_str(), false, true, {field.key, "no effect"});
  }
  refuse("temperature=0,top_k=3", true, false, {"top_k", "temperature", "likeliest"});
  refuse("min_new_tokens=4,max_new_tokens=3", true, false, {"min_new_tokens", "max_new_tokens"});
  refuse("num_return_sequences=9,num_beams=2", false, true, {"num_return_sequences", "2"});
  refuse("min_alternative_expansion_prob=0.1", false, true, {"return_alternatives"});
  GenerationSettings s;
  const auto given = set_from_list("bad_words_ids=3 40", s);
  testing::expect_error([&] { check_ids(s, given, 40); }, {"bad_words_ids", "40"});
  check_ids(s, {}, 40);
}

}  // namespace
}  // namespace qkv::generation_settings_test
