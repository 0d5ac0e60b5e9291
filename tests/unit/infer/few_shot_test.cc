#include "qkv/infer/few_shot.h"

#include "tests/source_dir.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::few_shot_test {
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

// A chain of thought leads from a question to its answer, if the template has a place for it.
TEST(FewShot, RationalesComeBeforeAnswers) {
  const ScratchDir dir;
  const std::string lines = R"({"input": "1+2+3=", "rationale": "1+2=3, 3+3=6", "output": "6"}
{"input": "2+2+1=", "rationale": "2+2=4, 4+1=5", "output": "5"}
)";
  EXPECT_EQ(read_few_shot(dir.write("e.jsonl", lines)).prompt("4+1+2="),
            "Input: 1+2+3=\nReasoning: 1+2=3, 3+3=6\nOutput: 6\n\n"
            "Input: 2+2+1=\nReasoning: 2+2=4, 4+1=5\nOutput: 5\n\nInput: 4+1+2=\nReasoning: ");
  const std::string settings = R"({"template": "Q {input} R {rationale} A {output}", "separator": ";"})";
  EXPECT_EQ(read_few_shot(dir.write("e.jsonl", settings + "\n" + lines)).prompt("4+1="),
            "Q 1+2+3= R 1+2=3, 3+3=6 A 6;Q 2+2+1= R 2+2=4, 4+1=5 A 5;Q 4+1= R ");
  const std::string plain = R"({"template": "Q {input} A {output}", "separator": ";"})";
  EXPECT_EQ(read_few_shot(dir.write("e.jsonl", plain + "\n" + lines)).prompt("4+1="),
            "Q 1+2+3= A 6;Q 2+2+1= A 5;Q 4+1= A ");
  const std::string some = lines + R"({"input": "5+5=", "output": "10"})";
  EXPECT_EQ(read_few_shot(dir.write("e.jsonl", some)).prompt("4").substr(0, 30),
            "Input: 1+2+3=\nOutput: 6\n\nInput");
  expect_error([&] { read_few_shot(dir.write("e.jsonl", settings + "\n" + some)); },
               {"{rationale}", "example 3"});
}

TEST(FewShot, TheExampleFile) {
  EXPECT_EQ(read_few_shot(testing::source_dir() + "/examples/capitals.toml").prompt("Spain"),
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
  for (const char* form :
       {"{input}", "{output} {input}", "{input} {input} {output}", "{rationale} {input} {output}",
        "{input} {output} {rationale}", "{input} {rationale} {rationale} {output}", ""})
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
}  // namespace qkv::few_shot_test
