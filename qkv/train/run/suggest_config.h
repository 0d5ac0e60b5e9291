// Suggests a configuration from the data (columns, labels, script, size) and the speed of this machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qkv/train/config/config.h"

namespace qkv {

// Tasks that a configuration can be suggested for.
enum class DataKind : uint8_t { text, classify, tag, translate, chat };
const std::vector<std::string>& data_kind_names();
DataKind data_kind_from_name(const std::string& name);

// The data and the user's choices.
struct SuggestOptions {
  std::string data;                        // a file
  std::string target = {};                 // file with translations of its lines, if separate
  std::optional<DataKind> kind = {};       // empty: decided from the data
  std::string out = {};                    // run directory; empty: runs/NAME, by the data
  double minutes = 5;                      // training time
  std::vector<std::string> settings = {};  // section.key=value, which are to override the suggestion
};

// The configuration as commented TOML, and one line about it to print.
struct SuggestedConfig {
  std::string toml, about, out;
};

// Throws Error if the data do not suffice for the task. Spends a second or two on measuring the training
// speed.
SuggestedConfig suggest_config(const SuggestOptions& options);

// True if a file holds data rather than a configuration: by its extension or, if that does not tell,
// because it is not TOML.
bool is_data_file(const std::string& path);

}  // namespace qkv
