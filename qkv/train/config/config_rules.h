// Rules that relate the keys of a configuration to each other.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "qkv/base/error.h"
#include "qkv/train/config/config.h"

namespace qkv {

// Throws UsageError.
template <typename... Args>
[[noreturn]] void usage(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

// A configuration's context, besides its values.
struct ReadConfig {
  const std::string& path;                        // path of its file, for errors
  const ModelSpec& from;                          // spec of the model that the run starts from, if any
  std::function<bool(const std::string&)> given;  // true if a key ("model.width") was given
  // True for a key that the user or another program chose. qkv itself writes every key into a run's
  // config.toml.
  std::function<bool(const std::string&)> chosen;
  std::function<bool(const std::string&)> overridden;  // true if --set gave a key
  double warmup_fraction;                              // meaningful if that key was given
  // Reads [model.kind.NAME]. REQUIRES: the model's own block is known.
  std::function<void(ModelSpec&)> read_kinds;
};

// Derives keys that were not given from those that were. Throws UsageError if keys contradict each other.
void resolve(TrainConfig& config, const ReadConfig& read);

}  // namespace qkv
