// Few-shot prompts: solved examples of a task, then the query to be answered in the same form.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// Solved examples and the template that makes a prompt of them.
struct FewShot {
  // A question and its answer.
  struct Example {
    std::string input, output;
  };
  std::string instruction;                                // stands before the examples, with a separator
  std::string form = "Input: {input}\nOutput: {output}";  // of one example
  std::string separator = "\n\n";                         // between two
  std::vector<Example> examples;

  // Instruction, examples, and the query: an example's form up to its output.
  std::string prompt(std::string_view query) const;
};

// From a file in TOML (its name ends in .toml) with the keys `instruction`, `template` (the form),
// `separator` and tables [[example]], each with `input` and `output`; or from JSON lines, objects with
// "input" and "output", where a first line may hold the other keys instead. Throws Error naming file, line or
// table, and key.
FewShot read_few_shot(const std::string& path);

}  // namespace qkv
