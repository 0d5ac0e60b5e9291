// Help about the keys of a configuration.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace qkv {

// A key for people.
struct KeyHelp {
  std::string section;     // "train"; "mix.NAME" stands for every dataset of a mixture
  std::string key;         // "learning_rate"
  std::string value;       // its default: TOML, or in words where it depends on other keys
  std::string help;        // its meaning
  std::string range;       // "0 to 0.95", "one of f32, bf16"; empty: any value of its type
  std::string objectives;  // that read it: "masked, permutation"; empty: all do
};

// Every key, in the order of the file.
std::vector<KeyHelp> key_helps();

// Those that most runs set.
std::vector<KeyHelp> common_keys();

// The keys that `words` mean, best first: a section ("train"), a key with its section or without, as we or as
// other tools call it ("lr"), or else the keys whose name and help have every word ("learning rate"). None:
// nothing was found.
std::vector<KeyHelp> find_keys(const std::string& words);

// Keys below the headers of their sections: "  key = default   # help (range) [objectives]", wrapped at 100
// columns.
std::string lines_of(std::span<const KeyHelp> keys);

}  // namespace qkv
