// A worked example with numbers: "Step-by-step calculation of the transformer architecture", slides that
// follow one sentence through an encoder layer and the masks of a decoder.
#pragma once

#include <string>
#include <vector>

namespace qkv {

// One table of the slides.
struct ExampleTable {
  std::string step;                        // its number: "5.1"
  std::string title, formula, key;         // "queries", "Q = X W^Q", a name for programs
  std::vector<std::string> rows, columns;  // tokens; no columns: those of a vector
  std::vector<std::vector<double>> values;
  int digits;             // behind the point, as printed
  std::string note = {};  // a place where the slides err or differ from the paper
};

// All tables, each computed from those before it as they are printed there.
std::vector<ExampleTable> worked_example();

}  // namespace qkv
