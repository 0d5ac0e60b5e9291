// Few-shot prompts: examples with answers, then a query to be answered in the same form.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// Examples and the template that turns them into a prompt.
struct FewShot {
  // A question, its answer, and the steps that lead to it (a scratchpad, Nye et al. 2021; a chain of thought,
  // Wei et al. 2022).
  struct Example {
    std::string input, output, rationale = {};
  };
  std::string instruction;                                // comes before the examples, with a separator
  std::string form = "Input: {input}\nOutput: {output}";  // template of one example
  std::string separator = "\n\n";                         // between two examples
  std::vector<Example> examples;

  // The instruction, the examples, and the query in the form of an example. The text ends where the query's
  // rationale would stand, or its output in a form without rationales.
  std::string prompt(std::string_view query) const;
};

// Reads a TOML file (named .toml) with the keys `instruction`, `template` (the form), `separator` and
// tables [[example]], each with `input`, `output` and, if wanted, `rationale`. Other files are JSON lines:
// objects with these keys; the first line may have the other keys instead. Without a template, rationales are
// shown if all examples have one. Throws Error naming file, line or table, and key.
FewShot read_few_shot(const std::string& path);

}  // namespace qkv
