// A configuration made by looking at data: its columns, labels, script and size, and the speed of this
// machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qkv/train/config/config.h"

namespace qkv {

// The tasks that a configuration can be suggested for.
enum class DataKind : uint8_t { text, classify, tag, translate, chat };
const std::vector<std::string>& data_kind_names();
DataKind data_kind_from_name(const std::string& name);

// The data and the wishes.
struct SuggestOptions {
  std::string data;                   // a file
  std::string target = {};            // the translations of its lines, where they are a file of their own
  std::optional<DataKind> kind = {};  // none: as the data look
  std::string out = {};               // folder of the run; empty: runs/NAME of the data
  double minutes = 5;                 // of training
};

// The configuration as commented TOML, and one line about it for people.
struct SuggestedConfig {
  std::string toml, about, out;
};

// Throws Error where the data do not suffice for the task. Measures the speed of training for a second or
// two.
SuggestedConfig suggest_config(const SuggestOptions& options);

// True where a file holds data rather than a configuration: by its name, or, where that says nothing, because
// it is no TOML.
bool is_data_file(const std::string& path);

}  // namespace qkv
