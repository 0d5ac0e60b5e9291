// Chat templates: where they are found, what they may cost, what errors say; the fuzz target over mutations.
// Covers: qkv/chat/jinja/builtins.cc, qkv/chat/jinja/lexer.cc, qkv/chat/jinja/nodes.cc
// Covers: qkv/chat/jinja/parser.cc, qkv/chat/jinja/python_strings.cc, qkv/chat/jinja/value.cc
#include "qkv/chat/chat_template.h"

#include <gtest/gtest.h>

#include <random>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

#define LLVMFuzzerTestOneInput fuzz_chat_template
#include "tests/fuzz/chat_template_fuzz.cc"
#include "tests/source_dir.h"
#include "tests/unit/mutation.h"
#undef LLVMFuzzerTestOneInput

namespace qkv::text::chat_template_test {
namespace {

using Json = nlohmann::ordered_json;
using testing::expect_error;

std::string render(const std::string& source, const Json& variables = Json::object()) {
  return ChatTemplate(source, "chat").render(variables, 86400).text;
}

void refuse(const std::string& source, std::initializer_list<std::string> parts) {
  expect_error([&] { render(source); }, parts);
}

TEST(ChatTemplate, IsFoundInADirectory) {
  const testing::ScratchDir dir;
  EXPECT_FALSE(ChatTemplate::find(dir.path()).has_value());
  dir.write("tokenizer_config.json",
            R"({"bos_token": {"content": "<s>"}, "chat_template": "{{ bos_token }}{{ eos_token }}{{ x }}"})");
  dir.write("special_tokens_map.json", R"({"eos_token": "</s>"})");
  EXPECT_EQ(ChatTemplate::find(dir.path())->render({{"x", 1}}, 0).text, "<s></s>1");
  dir.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(ChatTemplate::find(dir.path())->render(Json::object(), 0).text, "d");
  dir.write("chat_template.jinja", "file");
  EXPECT_EQ(ChatTemplate::find(dir.path())->render(Json::object(), 0).text, "file");
  dir.write("chat_template.jinja", "a\n{% if %}");
  expect_error([&] { ChatTemplate::find(dir.path()); }, {"chat_template.jinja: line 2", "expression"});
  std::filesystem::remove(dir.path() + "/chat_template.jinja");
  dir.write("tokenizer_config.json", R"({"chat_template": [{"name": "tools", "template": "t"}]})");
  expect_error([&] { ChatTemplate::find(dir.path()); }, {"tokenizer_config.json", "default"});
}

TEST(ChatTemplate, TheClockIsTheCallers) {
  EXPECT_EQ(render("{{ strftime_now('%Y') }}"), "1970");
}

TEST(ChatTemplate, WhatIsNotKnownIsNamedWithItsLine) {
  refuse("\n\n{% include 'x' %}", {"chat: line 3", "'include'", "are)"});
  refuse("{{ x | frobnicate }}", {"line 1", "'frobnicate'", "tojson"});
  refuse("{{ x is odder }}", {"line 1", "'odder'", "defined"});
  refuse("a\n{{ nothing() }}", {"line 2", "'nothing'"});
  refuse("{{ a.b }}", {"'a' is undefined"});
  refuse("{% for x in range(3) recursive %}{% endfor %}", {"recursive"});
  refuse("{% break %}", {"outside of a loop"});
  refuse("{{ raise_exception('Say it otherwise') }}", {"Say it otherwise"});
  refuse("{% if true %}", {"endif", "end of the template"});
  refuse("{{ [1].append(2) }}", {"append", "not changed"});
  refuse("{{ 'a' + 1 }}", {"+", "a string and an integer"});
}

TEST(ChatTemplate, WhatItMayCostIsBounded) {
  refuse("{% for a in range(5000) %}{% for b in range(5000) %}x{% endfor %}{% endfor %}", {"more than"});
  refuse(
      "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor "
      "%}",
      {"MiB of text"});
  refuse(
      "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(100) %}{% set ns.s = ns.s.replace('x', "
      "'xxxx') %}"
      "{% endfor %}",
      {"MiB of text"});
  refuse("{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
         {"more than"});
  refuse(
      "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
      {"nested"});
  std::string laughs = "{% set a = ['x'] %}";
  for (int i = 0; i < 30; ++i) laughs += "{% set a = [a, a] %}";
  refuse(laughs + "{{ a }}", {"more than", "values"});
  refuse(
      "{% set ns = namespace(a=[1]) %}{% for i in range(15) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}"
      "{% for i in range(100000) %}{% if ns.a == ns.a %}{% endif %}{% endfor %}",
      {"steps"});
  refuse("{{ (['x' * 1000000] * 20000) | join | length }}", {"MiB of text"});
  refuse("{{ ('x' * 16000000) | list | length }}", {"taken apart"});
  refuse("{% set l = range(1000000) %}{% for i in l %}{% if -1 in l %}{% endif %}{% endfor %}",
         {"more than"});
  std::string tower = "{{ " + std::string(45, '(') + "1", levels;
  for (int i = 0; i < 45; ++i) {
    for (int j = 0; j < 480; ++j) tower += "+1";
    tower += ")";
  }
  refuse(tower + " }}", {"deep"});
  std::string ends;
  for (int i = 0; i < 90; ++i) levels += "{% if x %}", ends += "{% endif %}";
  refuse("{% macro f(x) %}" + levels + "{{ f(x) }}" + ends + "{% endmacro %}{{ f(1) }}", {"deep"});
  refuse("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", {"deep"});
  refuse("{{ range(100000000) }}", {"range"});
  refuse("{{ 'x' * 1000000000000 }}", {"too large"});
  refuse("{{ 9223372036854775807 + 1 }}", {"too large"});
  refuse("{{ 3 ** 100000000000 }}", {"too large"});
  refuse("{% set ns = namespace() %}{% set ns.a = [ns] %}", {"namespace"});
  for (const char* part : {"(", "[", "-", "not ", "{% if x %}", "{'a':"}) {
    std::string deep;
    for (int i = 0; i < 100000; ++i) deep += part;
    refuse(deep.starts_with("{%") ? deep : "{{ " + deep, {"line"});
  }
  std::string sum = "{{ 1", members = "{{ a", filters = "{{ 1";
  for (int i = 0; i < 100000; ++i) sum += " + 1", members += ".a", filters += "|int";
  refuse(sum + " }}", {"operands"});
  refuse(members + " }}", {"members"});
  refuse(filters + " }}", {"filters"});
}

TEST(ChatTemplateFuzz, MutatedTemplatesAreRunOrRefused) {
  const std::string folder = testing::source_dir() + "/tests/golden/chat_templates/";
  static constexpr const char* kPieces[] = {"{%", "%}", "{{", "}}",   "{#",  "-%}",    "(",  ")", "[",  "]",
                                            "|",  "is", "if", "for",  "set", "endfor", "'",  "~", "**", "in",
                                            "1",  ":",  ".",  "loop", "ns",  "macro",  "\n", "-", "+",  ","};
  std::mt19937 rng(2027);
  for (const char* name :
       {"functions.jinja", "documents.jinja", "blocks.jinja", "snippets.txt", "inst_tools.jinja"}) {
    const std::string source = read_file(folder + name);
    for (int i = 0; i < 300; ++i) {
      const size_t at = rng() % source.size();
      const std::string part = source.substr(at, 20 + rng() % 400);
      const std::string mutated = qkv::testing::mutate(
          i % 2 == 0 ? part : source, rng, kPieces,
          [](std::string& text, size_t where, const char* piece) { text.insert(where, piece); });
      fuzz_chat_template(reinterpret_cast<const uint8_t*>(mutated.data()), mutated.size());
    }
  }
}

}  // namespace
}  // namespace qkv::text::chat_template_test
