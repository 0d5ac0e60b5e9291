#include "qkv/infer/few_shot.h"

#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv {
namespace {

using testing::expect_error;
using testing::ScratchDir;

TEST(FewShot, DefaultsAreAsStated) {
  FewShot f;
  f.examples = {{"France", "Paris"}, {"Italy", "Rome"}};
  EXPECT_EQ(f.prompt("Spain"),
            "Input: France\nOutput: Paris\n\nInput: Italy\nOutput: Rome\n\nInput: Spain\nOutput: ");
}

TEST(FewShot, TomlAndJsonLinesSayTheSame) {
  const ScratchDir dir;
  const FewShot toml = read_few_shot(dir.write("e.toml", R"(instruction = "Give the \"capital\"."
template = "<{input}> = <{output}>"
separator = "\n"
[[example]]
input = "France {output}"
output = "Pâris {input}"
[[example]]
input = """
two
lines"""
output = ""
)"));
  const FewShot lines = read_few_shot(dir.write(
      "e.jsonl",
      R"({"instruction": "Give the \"capital\".", "template": "<{input}> = <{output}>", "separator": "\n"}

{"input": "France {output}", "output": "Pâris {input}"}
{"input": "two\nlines", "output": ""}
)"));
  // {input} and {output} in an example's own text stay as they are.
  const std::string want =
      "Give the \"capital\".\n<France {output}> = <Pâris {input}>\n<two\nlines> = <>\n<{output}> = <";
  EXPECT_EQ(toml.prompt("{output}"), want);
  EXPECT_EQ(lines.prompt("{output}"), want);
}

TEST(FewShot, TheExampleFile) {
  EXPECT_EQ(read_few_shot(QKV_SOURCE_DIR "/examples/capitals.toml").prompt("Spain"),
            "The capitals of some countries.\n\nCountry: France\nCapital: Paris\n\n"
            "Country: Italy\nCapital: Rome\n\nCountry: Spain\nCapital: ");
}

TEST(FewShot, RefusalsNameThePlace) {
  const ScratchDir dir;
  const auto refuse = [&](const char* name, const char* contents, std::initializer_list<std::string> parts) {
    expect_error([&] { read_few_shot(dir.write(name, contents)); }, parts);
  };
  refuse("e.toml", "x", {"e.toml:1"});
  refuse("e.toml", "", {"e.toml", "no example"});
  refuse("e.toml", "exampel = 3", {"e.toml", "exampel", "example"});
  refuse("e.toml", "example = 3", {"e.toml: example", "list"});
  refuse("e.toml", "[[example]]\ninput = \"a\"", {"e.toml: example[0]", "output", "missing"});
  refuse("e.toml", "[[example]]\ninput = \"a\"\noutput = 3", {"e.toml: example[0].output", "string", "3"});
  refuse("e.toml", "[[example]]\ninput = \"a\"\noutput = \"b\"\ngold = \"c\"", {"example[0]", "gold"});
  for (const char* form : {"{input}", "{output} {input}", "{input} {input} {output}", ""})
    refuse("e.toml", fmt::format("template = \"{}\"\n[[example]]\ninput=\"a\"\noutput=\"b\"", form).c_str(),
           {"e.toml", "template", form});
  refuse("e.jsonl", "", {"e.jsonl", "no example"});
  refuse("e.jsonl", "{\"input\": \"a\", \"output\": \"b\"}\nx", {"e.jsonl:2", "JSON"});
  refuse("e.jsonl", "{\"input\": \"a\", \"output\": \"b\"}\n{\"separator\": \"b\"}",
         {"e.jsonl:2", "separator"});
  refuse("e.jsonl", "\n{\"input\": \"a\"}", {"e.jsonl:2", "output", "missing"});
  refuse("e.jsonl", "[1]", {"e.jsonl:1", "object"});
  expect_error([&] { read_few_shot(dir.path() + "/none.toml"); }, {"none.toml"});
}

}  // namespace
}  // namespace qkv
