// States of models, kept in a folder between runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qkv/infer/ensemble.h"

namespace qkv {

// Hash of all that decides a state's bits besides the tokens: specs, weights, types, instruction set and
// version.
std::string fingerprint_of(const Ensemble& models);

// A folder of states of sequences of tokens, each a file. Processes may share the folder: files appear and go
// as wholes. Whatever is damaged, or of another version, counts as absent and is removed; other files are
// left. Failed writes are ignored: the cache never stops a run.
class PromptCache {
 public:
  static constexpr int64_t kMostBytes = int64_t{4} << 30;

  // `most_bytes`: size of all files together; those that were not used for longest go first.
  PromptCache(std::string folder, const Ensemble& models, int64_t most_bytes = kMostBytes);

  struct Entry {
    std::vector<int32_t> tokens;
    EnsembleState state;  // has one sequence, which has read these tokens
  };
  // The entry that shares the longest beginning with `tokens`, of all but the last of them, if it is longer
  // than `least` and its state can go back to it.
  std::optional<Entry> find(const std::vector<int32_t>& tokens, int64_t least);
  // Adds sequence 0 of a state, which has read these tokens, unless the folder has an entry that begins with
  // them; entries that they begin with are replaced.
  void add(const std::vector<int32_t>& tokens, const EnsembleState& state);

 private:
  struct File {
    std::string path;
    std::vector<int32_t> tokens;
  };
  std::vector<File> files() const;  // those of these models
  void make_room() const;

  std::string folder_;
  Ensemble models_;
  int64_t most_bytes_;
  std::string prefix_;  // begins the files' names
};

}  // namespace qkv
